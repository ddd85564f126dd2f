#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "base/random.hpp"
#include "sim/evaluation/evaluation.hpp"
#include "sim/evaluation/evaluation_columns.hpp"
#include "sim/evaluation/own_trace.hpp"
#include "sim/models/closed_loop.hpp"

namespace kvreplay {
namespace {

/// A text with a planted sentence, a question about the sentence, and its answer. The question is
/// read in decode steps, so that the systems see the whole answer.
struct Needle {
  std::vector<std::int32_t> ids;
  std::int64_t prompt_tokens = 0;
  std::int64_t answer_begin = 0;  ///< position of the answer's first token
};

/// `depth`: 0 puts the sentence before the first of the `length` prompt tokens, 1 behind the last.
Needle plant_needle(const Tokenise& tokenise, std::span<const std::int32_t> haystack,
                    std::int64_t length, double depth, std::uint64_t seed) {
  Random random(seed);
  static constexpr std::array kPlaces = {"blue door", "old mill", "north gate", "stone tower"};
  const std::string key = std::string("The pass key of the ") + kPlaces[random.below(4)] + " is";
  std::string digits;
  for (int i = 0; i < 5; ++i) digits += std::to_string(random.below(10));
  const std::string sentence = "\n" + key + " " + digits + ".\n";
  const std::vector<std::int32_t> planted = tokenise(sentence);
  const std::vector<std::int32_t> question = tokenise("\n\nRemember: " + key);
  const std::vector<std::int32_t> whole = tokenise("\n\nRemember: " + key + " " + digits);
  const std::int64_t rest = length - std::ssize(planted);
  if (rest < 0 || rest > std::ssize(haystack)) {
    throw UserError({"--lengths", ""}, std::to_string(length),
                    std::to_string(planted.size()) + " to " +
                        std::to_string(haystack.size() + planted.size()) +
                        ", what the text and the needle give");
  }
  const auto before = static_cast<std::int64_t>(std::llround(depth * static_cast<double>(rest)));
  Needle needle;
  needle.ids.assign(haystack.begin(), haystack.begin() + before);
  needle.ids.insert(needle.ids.end(), planted.begin(), planted.end());
  needle.ids.insert(needle.ids.end(), haystack.begin() + before, haystack.begin() + rest);
  needle.prompt_tokens = std::ssize(needle.ids);
  needle.answer_begin = needle.prompt_tokens + std::ssize(question);
  needle.ids.insert(needle.ids.end(), whole.begin(), whole.end());
  return needle;
}

}  // namespace

EvaluationResult evaluate_needles(const EvaluationRequest& request, const Model& model,
                                  const ModelText& text, std::span<const EvaluationCell> cells,
                                  const std::string& folder, const Tokenise& tokenise) {
  const std::vector<NamedDecideSpec> specs = specs_of(cells);
  const OwnTrace own(model, text,
                     {.folder = folder,
                      .adapter_trace = request.adapter_trace,
                      .prompt_tokens = 64,
                      .steps = 1,
                      .threads = request.threads});
  struct Row {
    std::size_t cell;
    std::int64_t length;
    double depth;
    double log_probability;
    double accuracy;
  };
  std::vector<Row> rows;
  std::vector<EvaluationCell> all(1);
  all.front().system = "full";
  all.insert(all.end(), cells.begin(), cells.end());
  struct Trial {
    std::int64_t length;
    double depth;
    Needle needle;
    ClosedLoopOptions loop;
  };
  std::vector<Trial> trials;
  std::int64_t work = 0;
  {
    Progress progress("plant", std::ssize(request.lengths) * std::ssize(request.depths));
    for (const std::int64_t length : request.lengths) {
      for (const double depth : request.depths) {
        Needle needle =
            plant_needle(tokenise, text.ids, length, depth,
                         Random::derive(request.seed, static_cast<std::uint64_t>(trials.size())));
        const ClosedLoopOptions loop{.ids = needle.ids,
                                     .prompt_tokens = needle.prompt_tokens,
                                     .steps = std::ssize(needle.ids) - needle.prompt_tokens,
                                     .adapters = &own.adapters(),
                                     .seed = request.seed,
                                     .threads = request.threads};
        work += closed_loop_work(model.architecture(), std::ssize(cells), loop);
        trials.push_back({length, depth, std::move(needle), loop});
        progress.advance();
      }
    }
  }
  Progress progress("needles", work);
  for (Trial& trial : trials) {
    const Needle& needle = trial.needle;
    trial.loop.progress = &progress;
    ClosedLoopResult result = run_closed_loop(model, specs, trial.loop);
    std::vector<ClosedLoopRun> runs{std::move(result.full)};
    std::move(result.systems.begin(), result.systems.end(), std::back_inserter(runs));
    for (std::size_t i = 0; i < runs.size(); ++i) {
      double log_probability = 0;
      double right = 0;
      // The token at position p is predicted by the step at p - 1.
      for (std::int64_t t = needle.answer_begin; t < std::ssize(needle.ids); ++t) {
        const auto step = static_cast<std::size_t>(t - 1 - needle.prompt_tokens);
        log_probability += static_cast<double>(runs[i].log_probability[step]);
        right += runs[i].likeliest[step] == needle.ids[static_cast<std::size_t>(t)] ? 1 : 0;
      }
      const auto count = static_cast<double>(std::ssize(needle.ids) - needle.answer_begin);
      rows.push_back({i, trial.length, trial.depth, log_probability / count, right / count});
    }
  }

  const auto cell = [&](std::size_t i) -> const EvaluationCell& { return all[rows[i].cell]; };
  const std::vector<EvaluationColumn> columns{
      {"system", [&](std::size_t i) { return cell(i).system; }, 0, false},
      {"budget", [&](std::size_t i) { return cell(i).budget; }, -1, true},
      {"budget_unit", [&](std::size_t i) { return cell(i).unit; }, 0, false},
      {"length", [&](std::size_t i) { return std::to_string(rows[i].length); }, 0, true},
      {"depth", [&](std::size_t i) { return number_field(rows[i].depth); }, 2, true},
      {"answer_log_probability",
       [&](std::size_t i) { return number_field(rows[i].log_probability); }, 3, true},
      {"answer_accuracy", [&](std::size_t i) { return number_field(rows[i].accuracy); }, 3, true}};

  const auto over_all = [&](std::size_t i, double Row::*member) {
    double sum = 0;
    double count = 0;
    for (const Row& row : rows) {
      if (row.cell != i) continue;
      sum += row.*member;
      ++count;
    }
    return number_field(sum / count);
  };
  std::vector<EvaluationColumn> summary = cell_columns(all);
  summary.push_back({"answer_log_probability",
                     [&](std::size_t i) { return over_all(i, &Row::log_probability); }, 3, true});
  summary.push_back(
      {"answer_accuracy", [&](std::size_t i) { return over_all(i, &Row::accuracy); }, 3, true});
  const std::string shown = table_text(summary, all.size());
  return {{{"needle.csv", csv_text(columns, rows.size())}, {"table.txt", shown}}, shown};
}

}  // namespace kvreplay
