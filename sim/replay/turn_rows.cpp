#include "sim/replay/turn_rows.hpp"

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace kvreplay {
namespace {

struct TurnRow {
  std::int64_t number = 1;
  const TurnTiming* turn = nullptr;
};

/// Of a later turn, in milliseconds; the first has nothing to bring back.
std::function<CellValue(const TurnRow&)> of_later(SimTime TurnTiming::*member) {
  return [=](const TurnRow& row) -> CellValue {
    if (row.number == 1) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(row.turn->*member) / 1e6;
  };
}
std::function<CellValue(const TurnRow&)> of_turn(std::int64_t TurnTiming::*member) {
  return [=](const TurnRow& row) -> CellValue { return row.turn->*member; };
}

const std::vector<Column<TurnRow>>& turn_columns() {
  static const std::vector<Column<TurnRow>> columns{
      {"turn", "number of the turn, from 1",
       [](const TurnRow& row) -> CellValue { return row.number; }},
      {"earlier_tokens", "tokens of the turns before", of_turn(&TurnTiming::earlier_tokens)},
      {"new_tokens", "tokens that the turn prefills", of_turn(&TurnTiming::new_tokens)},
      {"decoded_tokens", "tokens of the turn's answer", of_turn(&TurnTiming::decoded_tokens)},
      {"turn_read_bytes", "bytes of earlier entries that the turn's prefill reads",
       [](const TurnRow& row) -> CellValue { return row.turn->timing.prefill.read_bytes; }},
      {"resume_ms", "of ttft_ms: bringing back what idle time took from memory",
       of_later(&TurnTiming::resume_ns), 1},
      {"restore_ms", "reading all that earlier turns left, with nothing else to do",
       of_later(&TurnTiming::restore_ns), 1},
      {"recompute_ms",
       "what prefilling the tokens of earlier turns anew would add to the turn's own prefill",
       of_later(&TurnTiming::recompute_ns), 1},
      {"index_read_ms", "reading the index as it was written", of_later(&TurnTiming::index_read_ns),
       1},
      {"index_rebuild_ms", "computing the index anew", of_later(&TurnTiming::index_rebuild_ns), 1},
      {"suspend_ms", "writing what only memory holds, before the idle time",
       of_later(&TurnTiming::suspend_ns), 1},
      {"suspend_bytes", "bytes of it", of_turn(&TurnTiming::suspend_bytes)},
  };
  return columns;
}

}  // namespace

ResultTable turn_rows(std::span<const CellResult> cells) {
  std::vector<CellResult> rows;
  std::vector<TurnRow> turns;
  for (const CellResult& cell : cells) {
    for (std::size_t i = 0; i < cell.timing.turns.size(); ++i) {
      const TurnTiming& turn = cell.timing.turns[i];
      CellResult& row = rows.emplace_back(cell);
      row.timing = Timing(turn.timing);
      if (i < cell.turn_quality.size()) row.quality = cell.turn_quality[i];
      turns.push_back({static_cast<std::int64_t>(i + 1), &turn});
    }
  }
  ResultTable table = result_rows(rows);
  for (const Column<TurnRow>& column : turn_columns()) {
    table.columns.push_back({column.name, column.table_decimals});
    for (std::size_t i = 0; i < turns.size(); ++i) {
      table.rows[i].push_back(column.value(turns[i]));
    }
  }
  return table;
}

TableView turn_view() {
  return {.columns = {"system", "device", "model", "turn", "earlier_tokens", "new_tokens",
                      "ttft_ms", "turn_read_bytes", "restore_ms", "recompute_ms", "resume_ms",
                      "tokens_per_s"}};
}

}  // namespace kvreplay
