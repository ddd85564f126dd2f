#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/number_text.hpp"
#include "base/table.hpp"
#include "sim/replay/results.hpp"
#include "sim/replay/wear.hpp"
#include "sim/tuning/goal.hpp"
#include "sim/tuning/recommend.hpp"

namespace kvreplay {
namespace {

std::string of_at_most_two_digits(double value) {
  return fixed_text(value, value < 1 ? 2 : value < 10 ? 1 : 0);
}

std::string missed_text(const std::vector<MissedLimit>& missed) {
  std::string text;
  for (const MissedLimit& one : missed) text += (text.empty() ? "" : "; ") + one.text;
  return text.empty() ? "nothing" : text;
}

/// "5.1 tokens per second, first token after 271 s, 198 MB of memory, output error 0.121"; with the
/// wait for the next question where it is asked about.
std::string facts_text(const RecommendedRow& row, bool with_next) {
  const CellResult& cell = row.cell;
  const std::int64_t memory = std::max(cell.timing.dram.kv_bytes(), cell.timing.prefill.dram_bytes);
  std::string text = of_at_most_two_digits(metric(cell, "tokens_per_s")) +
                     " tokens per second, first token after " +
                     of_at_most_two_digits(static_cast<double>(cell.timing.prefill.ttft_ns) / 1e9) +
                     " s, ";
  if (with_next && row.next) {
    text += "that of the next question after " + of_at_most_two_digits(row.next->ttft_s()) + " s, ";
  }
  text += of_at_most_two_digits(static_cast<double>(memory) / 1e6) +
          " MB of memory, output error " + fixed_text(cell.quality.output_error, 3);
  const double years = wear_of(cell).years;
  if (!std::isnan(years)) {
    text += ", " + cell.device + " lasts " + of_at_most_two_digits(years) + " years";
  }
  return text;
}

std::string next_text(const RecommendedRow& row) {
  const NextQuestion& next = *row.next;
  const std::string about = next.turn == 0 ? "about " : "";
  std::string text = "The next question, " + std::to_string(next.new_tokens) + " tokens after " +
                     std::to_string(next.earlier_tokens) + ": first token after " + about +
                     of_at_most_two_digits(next.ttft_s()) + " s, ";
  if (next.reads_back()) {
    text += "and " + of_at_most_two_digits(next.compute_anew_s - next.read_back_s) +
            " s more if the conversation had to be computed anew";
  } else {
    text += "with the conversation computed anew, which is faster than reading it from " +
            row.cell.device + ": " + about + of_at_most_two_digits(next.read_back_s) + " s";
  }
  if (next.turn > 0) text += " (turn " + std::to_string(next.turn) + " of the recording)";
  return text + ".\n";
}

Table ranking(const Recommendation& recommendation) {
  const bool with_next = recommendation.limits.max_next_ttft_s.has_value();
  std::vector<Table::Column> columns{
      {"", Table::Align::kRight}, {"system", Table::Align::kLeft}, {"tokens/s"}, {"first token s"}};
  if (with_next) columns.push_back({"next question s"});
  for (const char* name : {"memory MB", "output error", "years"}) columns.push_back({name});
  columns.push_back({"misses", Table::Align::kLeft});
  Table table(std::move(columns));
  std::size_t rank = 0;
  for (const RecommendedRow& row : recommendation.rows) {
    const CellResult& cell = row.cell;
    const double years = wear_of(cell).years;
    const std::int64_t memory =
        std::max(cell.timing.dram.kv_bytes(), cell.timing.prefill.dram_bytes);
    std::vector<std::string> cells{
        std::to_string(++rank), row.system, of_at_most_two_digits(metric(cell, "tokens_per_s")),
        of_at_most_two_digits(static_cast<double>(cell.timing.prefill.ttft_ns) / 1e9)};
    if (with_next) cells.push_back(of_at_most_two_digits(row.next->ttft_s()));
    cells.insert(cells.end(),
                 {of_at_most_two_digits(static_cast<double>(memory) / 1e6),
                  fixed_text(cell.quality.output_error, 3),
                  std::isnan(years) ? "-" : of_at_most_two_digits(years), missed_text(row.missed)});
    table.add_row(std::move(cells));
  }
  return table;
}

}  // namespace

std::string answer_text(const Recommendation& recommendation) {
  std::ostringstream text;
  const RecommendedRow& best = recommendation.rows.front();
  const bool with_next = recommendation.limits.max_next_ttft_s.has_value();
  text << recommendation.about << "\nasked for: "
       << (recommendation.limits.any() ? recommendation.limits.text() : "no limit") << "\n\n";
  for (const std::string& line : ranking(recommendation).lines()) {
    text << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
  const auto meet = std::count_if(recommendation.rows.begin(), recommendation.rows.end(),
                                  [](const RecommendedRow& row) { return row.missed.empty(); });
  text << '\n';
  if (meet > 0) {
    text << "Use " << best.system << ": " << facts_text(best, with_next) << ".\n";
    if (!best.budgets.empty()) text << "  with " << best.budgets << '\n';
    if (meet > 1) text << meet << " of " << recommendation.rows.size() << " systems would do.\n";
  } else {
    text << "Nothing that ships does. " << best.system
         << " comes closest: " << missed_text(best.missed) << ".\n";
    if (!best.budgets.empty()) text << "  with " << best.budgets << '\n';
    if (recommendation.changes.empty()) {
      text << "No single change that was tried is enough: more memory, a smaller context, another "
              "device, a faster processor.\n";
    }
    bool first = true;
    for (const HelpfulChange& change : recommendation.changes) {
      text << (first ? "The cheapest change that would help: " : "Otherwise: ") << change.text
           << ".\n  " << change.row.system << " then has " << facts_text(change.row, with_next)
           << ".\n";
      first = false;
    }
  }
  if (best.next) text << next_text(best);
  text << "(" << recommendation.evaluations
       << " replays; memory is that of key-value management at its peak, prefill included; years "
          "are of "
       << of_at_most_two_digits(best.cell.conversation.per_day) << " conversations a day)\n";
  return text.str();
}

std::vector<ResultFile> result_files(const Recommendation& recommendation,
                                     const std::string& command) {
  std::vector<CellResult> cells;
  for (const RecommendedRow& row : recommendation.rows) cells.push_back(row.cell);
  ResultTable table = result_rows(cells);
  table.columns.push_back({"budgets"});
  table.columns.push_back({"misses"});
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    table.rows[i].emplace_back(recommendation.rows[i].budgets);
    table.rows[i].emplace_back(
        recommendation.rows[i].missed.empty() ? "" : missed_text(recommendation.rows[i].missed));
    take_recorded_quality(table, i, recommendation.rows[i].cell);
  }
  const RecommendedRow& best = recommendation.rows.front();
  return {{"answer.txt", answer_text(recommendation)},
          {"ranked.csv", csv_text(table)},
          {"best.json",
           system_file(best.composition, best.system + ": " + recommendation.about, command)}};
}

}  // namespace kvreplay
