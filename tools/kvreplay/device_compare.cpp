#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "devices/calibration/comparison.hpp"
#include "sim/replay/experiment.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

struct CompareOptions {
  std::vector<std::string> names;
  std::vector<std::string> sets;
  bool rows = false;
  bool csv = false;
  bool markdown = false;
  std::string plot;
  std::string configs = ConfigFolder::standard().folder();
};

struct Compared {
  MeasuredTable table;
  std::vector<ComparedRow> rows;
};

/// The tables that are named, and those that are laid over a preset that is named; without names
/// all, by preset.
std::vector<MeasuredTable> wanted_tables(const ConfigFolder& configs,
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

double greatest_error_percent(const std::vector<ComparedRow>& rows) {
  double greatest = 0;
  for (const ComparedRow& row : rows) greatest = std::max(greatest, std::abs(row.error_percent()));
  return greatest;
}

void print_rows(const Compared& compared) {
  for (const ComparedRow& row : compared.rows) {
    std::printf("    %8s depth %-4u measured %10.1f  model %10.1f %-7s %+7.1f %%\n",
                size_text(row.measured.bytes).c_str(), row.measured.depth, row.measured.value,
                row.model, compared.table.quantity.c_str(), row.error_percent());
  }
}

void print_tables(const std::vector<Compared>& all, bool with_rows) {
  std::printf("%-24s %-12s %-9s %5s %14s %16s\n", "table", "preset", "use", "rows",
              "median error %", "greatest error %");
  for (const Compared& compared : all) {
    const MeasuredTable& table = compared.table;
    std::printf("%-24s %-12s %-9s %5zu %14.1f %16.1f\n", table.name.c_str(), table.preset.c_str(),
                table.fitted ? "fit" : "held out", compared.rows.size(),
                median_error_percent(compared.rows), greatest_error_percent(compared.rows));
    if (with_rows) print_rows(compared);
  }
}

void print_markdown(const std::vector<Compared>& all) {
  std::printf("| preset | measurement | use | rows | median error %% | greatest | assumed |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const Compared& compared : all) {
    const MeasuredTable& table = compared.table;
    std::printf("| %s | %s (`%s`) | %s | %zu | %.1f | %.1f | %s |\n", table.preset.c_str(),
                table.title.c_str(), table.name.c_str(), table.fitted ? "fit" : "held out",
                compared.rows.size(), median_error_percent(compared.rows),
                greatest_error_percent(compared.rows), table.assumptions.c_str());
  }
}

std::string csv_text(const std::vector<Compared>& all) {
  std::string text =
      "table,preset,use,pattern,write_percent,quantity,bytes,depth,measured,model,error_percent\n";
  std::array<char, 256> line{};
  for (const Compared& compared : all) {
    const MeasuredTable& table = compared.table;
    for (const ComparedRow& row : compared.rows) {
      std::snprintf(line.data(), line.size(), ",%s,%s,%g,%s,%llu,%u,%.6g,%.6g,%.3f\n",
                    table.fitted ? "fit" : "held out",
                    table.workload.sequential ? "sequential" : "random",
                    100 * table.workload.write_share, table.quantity.c_str(),
                    static_cast<unsigned long long>(row.measured.bytes), row.measured.depth,
                    row.measured.value, row.model, row.error_percent());
      text += table.name + "," + table.preset + line.data();
    }
  }
  return text;
}

void compare_all(const CompareOptions& options) {
  const ConfigFolder configs(options.configs);
  const std::vector<MeasuredTable> tables = wanted_tables(configs, options.names);
  const int threads = processor_count();
  std::vector<Compared> all;
  Progress progress("Comparing", static_cast<std::int64_t>(tables.size()));
  for (const MeasuredTable& table : tables) {
    const ConfigNode preset =
        with_sets(ConfigNode::load(configs.file("devices", table.preset, {})), options.sets);
    all.push_back({table, compare(preset, table, threads)});
    progress.advance();
  }
  if (options.csv) {
    std::cout << csv_text(all);
  } else if (options.markdown) {
    print_markdown(all);
  } else {
    print_tables(all, options.rows);
  }
  if (!options.plot.empty()) {
    plot_csv("plot_overlay", csv_text(all), "Measured (points) and modelled (lines)", options.plot);
  }
}

}  // namespace

void add_device_compare(CLI::App& device) {
  CLI::App* command =
      device.add_subcommand("compare", "Lay published measurements over the device models");
  auto options = std::make_shared<CompareOptions>();
  command
      ->add_option("NAME", options->names,
                   "Tables of configs/measurements, files of such, or presets (default: all)")
      ->type_name("");
  command->add_flag("--rows", options->rows, "Each row, not only the median of the table");
  command->add_flag("--csv", options->csv, "One row a measured point");
  command->add_flag("--markdown", options->markdown,
                    "The table of docs/results/device-accuracy.md");
  add_set_option(*command, options->sets);
  add_plot_option(*command, options->plot);
  command->add_option("--configs", options->configs, "Where names are looked up")->type_name("DIR");
  command->footer(
      "The model runs at each measured point: same size, depth, pattern and range. An error is\n"
      "model / measured - 1; the median is of its absolute values.\n"
      "Examples:\n"
      "  kvreplay device compare\n"
      "  kvreplay device compare ufs40 --rows --plot ufs40.png\n"
      "  kvreplay device compare ufs40_random_read --set channel_mb_s=650 --rows");
  command->callback([options] { compare_all(*options); });
}

}  // namespace kvreplay
