#include "devices/calibration/comparison_report.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/size.hpp"
#include "base/table.hpp"

namespace kvreplay {
namespace {

constexpr auto kLeft = Table::Align::kLeft;
constexpr auto kRight = Table::Align::kRight;

double max_error_percent(const std::vector<ComparedRow>& rows) {
  double max = 0;
  for (const ComparedRow& row : rows) max = std::max(max, std::abs(row.error_percent()));
  return max;
}

const char* use_of(const MeasuredTable& table) {
  return table.fitted ? "fit" : "held out";
}

std::string rows_text(const ComparedTable& compared) {
  Table table({{"", kRight, 12},
               {"", kLeft, 10},
               {"", kLeft, 8},
               {"", kRight, 10},
               {"", kLeft, 6},
               {"", kRight, 10},
               {"", kLeft, 7},
               {"", kRight, 7},
               {"", kLeft}},
              " ");
  for (const ComparedRow& row : compared.rows) {
    const double error = row.error_percent();
    table.add_row(
        {short_size_text(row.measured.bytes), "depth " + std::to_string(row.measured.depth),
         "measured", fixed_text(row.measured.value, 1), " model", fixed_text(row.model, 1),
         compared.table.quantity, (std::signbit(error) ? "" : "+") + fixed_text(error, 1), "%"});
  }
  return table.text(false);
}

}  // namespace

std::vector<MeasuredTable> find_measured_tables(const ConfigFolder& configs,
                                                const std::vector<std::string>& names) {
  std::vector<std::string> known = configs.names("measurements");
  std::vector<MeasuredTable> all;
  for (const std::string& name : known) {
    all.push_back(MeasuredTable::load(configs.file("measurements", name, {})));
  }
  std::stable_sort(all.begin(), all.end(), [](const MeasuredTable& a, const MeasuredTable& b) {
    return a.preset < b.preset;
  });
  if (names.empty()) return all;
  std::vector<MeasuredTable> wanted;
  for (const std::string& name : names) {
    const std::size_t before = wanted.size();
    for (const MeasuredTable& table : all) {
      if (table.name == name || table.preset == name) wanted.push_back(table);
    }
    if (wanted.size() > before) continue;
    if (name.find('/') != std::string::npos || name.ends_with(".json")) {
      wanted.push_back(MeasuredTable::load(name));
      continue;
    }
    for (const std::string& preset : configs.names("devices")) known.push_back(preset);
    throw unknown_name({}, "table or preset", name, known);
  }
  return wanted;
}

std::string comparison_text(std::span<const ComparedTable> all, bool with_rows) {
  Table table({{"table", kLeft, 24},
               {"preset", kLeft, 12},
               {"use", kLeft, 9},
               {"rows", kRight, 5},
               {"median error %", kRight, 14},
               {"greatest error %", kRight, 16}},
              " ");
  for (const ComparedTable& compared : all) {
    table.add_row({compared.table.name, compared.table.preset, use_of(compared.table),
                   std::to_string(compared.rows.size()),
                   fixed_text(median_error_percent(compared.rows), 1),
                   fixed_text(max_error_percent(compared.rows), 1)});
  }
  const std::vector<std::string> lines = table.lines();
  std::string text = lines.front() + '\n';
  for (std::size_t i = 0; i < all.size(); ++i) {
    text += lines[i + 1] + '\n';
    if (with_rows) text += rows_text(all[i]);
  }
  return text;
}

std::string comparison_markdown(std::span<const ComparedTable> all) {
  Table table({{"preset"},
               {"measurement"},
               {"use"},
               {"rows"},
               {"median error %"},
               {"greatest"},
               {"assumed"}});
  for (const ComparedTable& compared : all) {
    const MeasuredTable& measured = compared.table;
    table.add_row({measured.preset, measured.title + " (`" + measured.name + "`)", use_of(measured),
                   std::to_string(compared.rows.size()),
                   fixed_text(median_error_percent(compared.rows), 1),
                   fixed_text(max_error_percent(compared.rows), 1), measured.assumptions});
  }
  return table.markdown();
}

std::string comparison_csv(std::span<const ComparedTable> all) {
  std::string text =
      "table,preset,use,pattern,write_percent,quantity,bytes,depth,measured,model,error_percent\n";
  std::string line;
  for (const ComparedTable& compared : all) {
    const MeasuredTable& table = compared.table;
    for (const ComparedRow& row : compared.rows) {
      line = format_text(",%s,%s,%g,%s,%llu,%u,%.6g,%.6g,%.3f\n", use_of(table),
                         table.workload.sequential ? "sequential" : "random",
                         100 * table.workload.write_share, table.quantity.c_str(),
                         static_cast<unsigned long long>(row.measured.bytes), row.measured.depth,
                         row.measured.value, row.model, row.error_percent());
      text += table.name + "," + table.preset + line;
    }
  }
  return text;
}

}  // namespace kvreplay
