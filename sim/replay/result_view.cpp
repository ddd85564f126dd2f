// What is printed of a table of results, and how. results.hpp declares it.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/fitted_table.hpp"
#include "base/number_text.hpp"
#include "base/size.hpp"
#include "base/table.hpp"
#include "sim/replay/heading.hpp"
#include "sim/replay/results.hpp"

namespace kvreplay {
namespace {

/// In a row's `projection`, where hit rates are of a shorter recording.
constexpr std::string_view kStretchedFrom = ", stretched from ";

constexpr std::string_view kElsewhere = "--columns +NAME adds one";

/// Longer texts, such as a composition in JSON, are in no usual table.
constexpr std::size_t kLongText = 60;

const Column<CellResult>* declared_column(std::string_view name) {
  for (const Column<CellResult>& column : result_columns()) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

std::optional<double> numeric_value(const CellValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  const auto* real = std::get_if<double>(&value);
  if (real == nullptr || std::isnan(*real)) return std::nullopt;
  return *real;
}

/// Four digits, without an exponent where that is short.
std::string four_digits(double value) {
  const double size = std::abs(value);
  return size >= 1000 && size < 1e12 ? fixed_text(value, 0) : format_text("%.4g", value);
}

/// `decimals`: of the column; -1 = as many as give four digits.
std::string shown_text(const CellValue& value, const std::string& name, int decimals) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const std::optional<double> number = numeric_value(value);
  if (!number) return "-";
  if (counts_bytes(name)) return decimal_size_text(*number);
  if (decimals <= 0 && std::holds_alternative<std::int64_t>(value)) return exact_text(value);
  return decimals < 0 ? four_digits(*number) : fixed_text(*number, decimals);
}

/// A table with the places of what is special in it.
class TableReader {
 public:
  explicit TableReader(const ResultTable& table) : table_(table) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) place_.emplace(table.columns[i].name, i);
  }

  /// "" where there is no such column or it holds a number.
  [[nodiscard]] std::string text(std::size_t row, std::string_view name) const {
    const CellValue* found = value(row, name);
    const auto* text = found == nullptr ? nullptr : std::get_if<std::string>(found);
    return text == nullptr ? "" : *text;
  }
  [[nodiscard]] std::optional<double> number(std::size_t row, std::string_view name) const {
    const CellValue* found = value(row, name);
    return found == nullptr ? std::nullopt : numeric_value(*found);
  }
  [[nodiscard]] bool has(std::string_view name) const { return place_.contains(name); }
  [[nodiscard]] std::size_t place(std::string_view name) const { return place_.find(name)->second; }

  [[nodiscard]] bool is_text(std::size_t column) const {
    return std::any_of(table_.rows.begin(), table_.rows.end(), [&](const auto& row) {
      return std::holds_alternative<std::string>(row[column]);
    });
  }
  /// Tells rows apart: texts but the marks, and what stands between `system` and `steps`.
  [[nodiscard]] bool is_label(std::size_t column) const {
    const std::string& name = table_.columns[column].name;
    if (name == "batch" || name == "layer" || name == "budget") return true;
    if (has("system") && has("steps") && place("system") < column && column < place("steps")) {
      return true;
    }
    return name != "marks" && is_text(column);
  }
  [[nodiscard]] bool is_stretched(std::size_t row) const {
    return text(row, "projection").find(kStretchedFrom) != std::string::npos;
  }

 private:
  [[nodiscard]] const CellValue* value(std::size_t row, std::string_view name) const {
    const auto found = place_.find(name);
    return found == place_.end() ? nullptr : &table_.rows[row][found->second];
  }

  const ResultTable& table_;
  std::map<std::string, std::size_t, std::less<>> place_;
};

bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  for (std::size_t skip = star; skip <= name.size(); ++skip) {
    if (matches(pattern.substr(star + 1), name.substr(skip))) return true;
  }
  return false;
}

/// Places of the names that match, in their order. Throws where there is none.
std::vector<std::size_t> named_places(const std::string& wanted, std::span<const std::string> names,
                                      const char* option) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    // The last part of a swept key will do: budget_tokens of system.selection.budget_tokens.
    if (matches(wanted, names[i]) || names[i].ends_with('.' + wanted)) found.push_back(i);
  }
  if (found.empty()) throw unknown_name({option, ""}, "column", wanted, names);
  return found;
}

struct SortKey {
  std::size_t column = 0;
  bool descending = false;
};

std::vector<SortKey> sort_keys(const TableView& view, std::span<const std::string> names) {
  std::vector<SortKey> keys;
  for (const std::string& word : view.sort) {
    const std::size_t colon = word.find(':');
    const std::string order = colon == std::string::npos ? "asc" : word.substr(colon + 1);
    if (order != "asc" && order != "desc") {
      throw UserError({"--sort", ""}, "found '" + word + "'", "KEY, KEY:asc or KEY:desc");
    }
    keys.push_back({named_places(word.substr(0, colon), names, "--sort").front(), order == "desc"});
  }
  return keys;
}

/// Below 0: `a` comes first. What is unknown comes last in either order.
int compare_values(const CellValue& a, const CellValue& b, bool descending) {
  const std::optional<double> left = numeric_value(a);
  const std::optional<double> right = numeric_value(b);
  const bool left_text = std::holds_alternative<std::string>(a);
  const bool right_text = std::holds_alternative<std::string>(b);
  if (left_text && right_text) {
    const int order = std::get<std::string>(a).compare(std::get<std::string>(b));
    return descending ? -order : order;
  }
  if (left && right) {
    const int order = *left < *right ? -1 : *left > *right ? 1 : 0;
    return descending ? -order : order;
  }
  const auto unknown = [](bool is_text, bool is_number) { return is_text || is_number ? 0 : 1; };
  return unknown(left_text, left.has_value()) - unknown(right_text, right.has_value());
}

std::vector<std::size_t> sorted_rows(const ResultTable& table, std::span<const SortKey> keys) {
  std::vector<std::size_t> order(table.rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    for (const SortKey& key : keys) {
      const int side =
          compare_values(table.rows[a][key.column], table.rows[b][key.column], key.descending);
      if (side != 0) return side < 0;
    }
    return false;
  });
  return order;
}

std::vector<std::string> names_of(const ResultTable& table) {
  std::vector<std::string> names;
  names.reserve(table.columns.size());
  for (const ResultTable::Head& head : table.columns) names.push_back(head.name);
  return names;
}

/// Those with decimals; where the table is of something else than cells, all but long texts.
std::vector<std::size_t> usual_columns(const ResultTable& table, const TableReader& reader) {
  std::vector<std::size_t> columns;
  const bool of_cells = reader.has("latency_ms");
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const auto is_long = [&](const std::vector<CellValue>& row) {
      const auto* text = std::get_if<std::string>(&row[i]);
      return text != nullptr && text->size() > kLongText;
    };
    const bool declared = declared_column(table.columns[i].name) != nullptr;
    if (of_cells && table.columns[i].decimals < 0) continue;
    const auto is_unknown = [&](const std::vector<CellValue>& row) {
      return !std::holds_alternative<std::string>(row[i]) && !numeric_value(row[i]);
    };
    // A recording may lack what it is computed from.
    if (table.columns[i].name == "residual_error" &&
        std::all_of(table.rows.begin(), table.rows.end(), is_unknown)) {
      continue;
    }
    if (!declared && std::any_of(table.rows.begin(), table.rows.end(), is_long)) continue;
    columns.push_back(i);
  }
  return columns;
}

struct Chosen {
  std::vector<std::size_t> columns;
  std::vector<std::size_t> rows;
  bool named = false;              ///< by the user
  std::vector<std::size_t> added;  ///< to the usual ones, by the user
};

Chosen choose_columns(const ResultTable& table, const TableView& view, const TableReader& reader,
                      bool all_columns) {
  const std::vector<std::string> names = names_of(table);
  Chosen chosen;
  chosen.rows = sorted_rows(table, sort_keys(view, names));
  std::vector<std::size_t> added;
  for (const std::string& word : view.columns) {
    const bool adds = word.starts_with('+');
    std::vector<std::size_t>& into = adds ? added : chosen.columns;
    const std::vector<std::size_t> places =
        word == "all" ? named_places("*", names, "--columns")
                      : named_places(word.substr(adds ? 1 : 0), names, "--columns");
    for (const std::size_t place : places) {
      if (std::find(into.begin(), into.end(), place) == into.end()) into.push_back(place);
    }
  }
  chosen.named = !chosen.columns.empty();
  if (chosen.columns.empty()) {
    if (all_columns) {
      chosen.columns.resize(names.size());
      std::iota(chosen.columns.begin(), chosen.columns.end(), std::size_t{0});
    } else {
      chosen.columns = usual_columns(table, reader);
    }
  } else if (!all_columns && std::none_of(chosen.columns.begin(), chosen.columns.end(),
                                          [&](std::size_t i) { return reader.is_label(i); })) {
    // Rows without names say nothing to people.
    std::vector<std::size_t> labels = usual_columns(table, reader);
    std::erase_if(labels, [&](std::size_t i) { return !reader.is_label(i); });
    chosen.columns.insert(chosen.columns.begin(), labels.begin(), labels.end());
  }
  for (const std::size_t place : added) {
    if (std::find(chosen.columns.begin(), chosen.columns.end(), place) == chosen.columns.end()) {
      chosen.columns.push_back(place);
    }
  }
  chosen.added = std::move(added);
  return chosen;
}

/// What a reader must know before any number.
std::string remarks(const ResultTable& table, const TableReader& reader, std::size_t width) {
  std::string text;
  std::map<std::string, double> too_large;  // the largest share, by system
  bool stretched = false;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (reader.number(row, "synthetic") == 1) {
      const std::string line =
          "SYNTHETIC trace, generated and not recorded: " + reader.text(row, "trace") + '\n';
      if (text.find(line) == std::string::npos) text += line;
    }
    stretched |= reader.is_stretched(row);
    const double share = reader.number(row, "dram_share").value_or(0);
    if (share <= 1) continue;
    double& largest = too_large[reader.text(row, "system")];
    largest = std::max(largest, share);
  }
  if (!too_large.empty()) {
    std::vector<std::string> systems;
    for (const auto& [system, share] : too_large) {
      systems.push_back(system + " (" + format_text("%.3g", share) + ")");
    }
    text += wrapped(
                "WARNING: does not fit in the platform's DRAM (dram_share above 1), so no such "
                "machine could run it: " +
                    join(systems),
                width) +
            '\n';
  }
  if (stretched) {
    text += "* of the recording's own length, not of the context that it stands for\n";
  }
  return text;
}

/// Of the columns at `places`. Two keys that have the same heading keep their names.
std::vector<std::string> heads_of(const ResultTable& table, std::span<const std::size_t> places,
                                  const TableView& view) {
  std::vector<std::string> heads;
  for (const std::size_t i : places) {
    const std::string& name = table.columns[i].name;
    const auto label = view.labels.find(name);
    heads.push_back(label != view.labels.end() ? label->second
                    : view.format == "latex"   ? heading(name)
                                               : name);
  }
  const std::vector<std::string> wanted = heads;
  for (std::size_t k = 0; k < places.size(); ++k) {
    const std::string& name = table.columns[places[k]].name;
    if (!view.labels.contains(name) && std::count(wanted.begin(), wanted.end(), wanted[k]) > 1) {
      heads[k] = name;
    }
  }
  return heads;
}

std::vector<FittedColumn> fitted_columns(const ResultTable& table, const TableReader& reader,
                                         const Chosen& chosen, const TableView& view) {
  const std::vector<std::string> heads = heads_of(table, chosen.columns, view);
  std::vector<FittedColumn> columns;
  for (std::size_t k = 0; k < chosen.columns.size(); ++k) {
    const std::size_t i = chosen.columns[k];
    const ResultTable::Head& head = table.columns[i];
    const Column<CellResult>* declared = declared_column(head.name);
    FittedColumn column;
    column.name = heads[k];
    column.is_text = reader.is_text(i);
    column.is_label = reader.is_label(i);
    column.rank = declared == nullptr ? 9 : declared->table_rank;
    const bool is_added =
        std::find(chosen.added.begin(), chosen.added.end(), i) != chosen.added.end();
    if (is_added) column.rank = -1;
    const int decimals = declared == nullptr ? -1 : head.decimals;
    for (const std::size_t row : chosen.rows) {
      std::string cell = shown_text(table.rows[row][i], head.name, decimals);
      if (head.name == "hit_rate" && cell != "-" && reader.is_stretched(row)) cell += '*';
      column.cells.push_back(std::move(cell));
    }
    const auto is_empty = [](const std::string& cell) { return cell.empty() || cell == "-"; };
    if (!chosen.named && !is_added &&
        std::all_of(column.cells.begin(), column.cells.end(), is_empty))
      continue;
    columns.push_back(std::move(column));
  }
  return columns;
}

/// For a text of its own: what is the same everywhere in the line above.
std::string document_table(std::vector<FittedColumn> columns, const std::string& said,
                           const std::string& format) {
  std::string same;
  if (!columns.empty() && columns.front().cells.size() > 1) {
    std::erase_if(columns, [&](const FittedColumn& column) {
      for (const std::string& cell : column.cells) {
        if (cell != column.cells.front()) return false;
      }
      same += (same.empty() ? "" : "; ") + column.name + ' ' + column.cells.front();
      return true;
    });
  }
  std::vector<Table::Column> heads;
  for (const FittedColumn& column : columns) {
    heads.push_back({column.name, column.is_text ? Table::Align::kLeft : Table::Align::kRight});
  }
  Table body(std::move(heads));
  for (std::size_t row = 0; !columns.empty() && row < columns.front().cells.size(); ++row) {
    std::vector<std::string> cells;
    for (const FittedColumn& column : columns) cells.push_back(column.cells[row]);
    body.add_row(std::move(cells));
  }
  std::string text;
  std::string line;
  for (const char character : said + (same.empty() ? "" : same + '\n')) {
    if (character != '\n') {
      line += character;
    } else {
      text += (format == "latex" ? "% " : "") + line + (format == "latex" ? "\n" : "\n\n");
      line.clear();
    }
  }
  if (format == "md") return text + body.markdown();
  return text + "% \\usepackage{booktabs}\n" + body.latex();
}

ResultTable chosen_part(const ResultTable& table, const Chosen& chosen, const TableView& view) {
  ResultTable part;
  const std::vector<std::string> heads = heads_of(table, chosen.columns, view);
  for (std::size_t k = 0; k < heads.size(); ++k) {
    part.columns.push_back({heads[k], table.columns[chosen.columns[k]].decimals});
  }
  for (const std::size_t row : chosen.rows) {
    std::vector<CellValue>& values = part.rows.emplace_back();
    for (const std::size_t i : chosen.columns) values.push_back(table.rows[row][i]);
  }
  return part;
}

/// With the labels in place of texts in rows.
ResultTable relabelled(ResultTable table, const TableView& view) {
  std::vector<std::string> names = names_of(table);
  for (std::vector<CellValue>& row : table.rows) {
    for (CellValue& value : row) {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr || text->empty()) continue;
      if (std::find(names.begin(), names.end(), *text) == names.end()) names.push_back(*text);
      const auto label = view.labels.find(*text);
      if (label != view.labels.end()) value = label->second;
    }
  }
  for (const auto& [name, label] : view.labels) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw unknown_name({"--label", ""}, "name", name, names);
    }
  }
  return table;
}

/// The fields of one record of a CSV text from `at` on, which moves behind it.
std::vector<std::string> csv_record(std::string_view text, std::size_t& at) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char character = text[at];
    if (character == '"') {
      if (quoted && at + 1 < text.size() && text[at + 1] == '"') {
        fields.back() += text[++at];
      } else {
        quoted = !quoted;
      }
    } else if (!quoted && character == ',') {
      fields.emplace_back();
    } else if (!quoted && character == '\n') {
      ++at;
      break;
    } else if (quoted || character != '\r') {
      fields.back() += character;
    }
  }
  return fields;
}

template <typename Number>
std::optional<Number> whole_number(const std::string& field) {
  Number number{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return number;
}

/// The column's values: integers, numbers (NaN where empty) or texts.
std::vector<CellValue> typed(const std::vector<std::string>& fields) {
  const auto all = [&](auto is) { return std::all_of(fields.begin(), fields.end(), is); };
  const bool empty = all([](const std::string& field) { return field.empty(); });
  std::vector<CellValue> values;
  if (!empty &&
      all([](const std::string& field) { return whole_number<std::int64_t>(field).has_value(); })) {
    for (const std::string& field : fields) values.emplace_back(*whole_number<std::int64_t>(field));
  } else if (!empty && all([](const std::string& field) {
               return field.empty() || whole_number<double>(field).has_value();
             })) {
    for (const std::string& field : fields) {
      // "5" beside "5.5" stays as it is written.
      if (const auto integer = whole_number<std::int64_t>(field)) {
        values.emplace_back(*integer);
      } else {
        values.emplace_back(whole_number<double>(field).value_or(std::nan("")));
      }
    }
  } else {
    for (const std::string& field : fields) values.emplace_back(field);
  }
  return values;
}

}  // namespace

std::vector<std::string> table_formats() {
  return {"table", "md", "latex", "csv", "json", "none"};
}

std::vector<std::string> result_names(std::span<const std::string> swept) {
  std::vector<std::string> names;
  for (const Column<CellResult>& column : result_columns()) {
    names.push_back(column.name);
    if (column.name == "system") names.insert(names.end(), swept.begin(), swept.end());
  }
  return names;
}

void check_view(const TableView& view, std::span<const std::string> names) {
  for (const std::string& word : view.columns) {
    if (word != "all") named_places(word.substr(word.starts_with('+') ? 1 : 0), names, "--columns");
  }
  sort_keys(view, names);
}

std::string view_text(const ResultTable& given, const TableView& view) {
  if (view.format == "none") return "";
  const ResultTable labelled = view.labels.empty() ? ResultTable() : relabelled(given, view);
  const ResultTable& table = view.labels.empty() ? given : labelled;
  const TableReader reader(table);
  const bool raw = view.format == "csv" || view.format == "json";
  if (!raw && table.rows.empty()) return "";
  const Chosen chosen = choose_columns(table, view, reader, raw);
  if (raw) {
    const ResultTable part = chosen_part(table, chosen, view);
    return view.format == "csv" ? csv_text(part) : json_text(part);
  }
  const std::vector<FittedColumn> columns = fitted_columns(table, reader, chosen, view);
  const bool fits = view.format == "table" && !chosen.named;
  const std::string said = remarks(table, reader, view.format == "table" ? view.width : 0);
  if (view.format != "table") return document_table(columns, said, view.format);
  return said + fitted_table(columns, fits ? view.width : 0, std::string(kElsewhere));
}

std::string table_text(const ResultTable& table) {
  return view_text(table, {});
}

ResultTable table_from_csv(const std::string& text, const std::string& file) {
  std::size_t at = 0;
  ResultTable table;
  const std::vector<std::string> names = csv_record(text, at);
  std::vector<std::vector<std::string>> fields(names.size());  // by column
  std::size_t rows = 0;
  while (at < text.size()) {
    const std::vector<std::string> record = csv_record(text, at);
    ++rows;
    if (record.size() != names.size()) {
      throw UserError(
          {file, ""},
          "row " + std::to_string(rows) + " has " + std::to_string(record.size()) + " fields",
          std::to_string(names.size()) + ", as the first line");
    }
    for (std::size_t i = 0; i < names.size(); ++i) fields[i].push_back(record[i]);
  }
  if (rows == 0) throw UserError({file, ""}, "has no rows", "a CSV file that kvreplay wrote");
  table.rows.resize(rows);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Column<CellResult>* declared = declared_column(names[i]);
    table.columns.push_back({names[i], declared == nullptr ? 3 : declared->table_decimals});
    const std::vector<CellValue> values = typed(fields[i]);
    for (std::size_t row = 0; row < rows; ++row) table.rows[row].push_back(values[row]);
  }
  return table;
}

}  // namespace kvreplay
