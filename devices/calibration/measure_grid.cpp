#include "devices/calibration/measure_grid.hpp"

#include <algorithm>

#include "base/number_text.hpp"
#include "base/parallel.hpp"
#include "base/size.hpp"
#include "base/table.hpp"

namespace kvreplay {
namespace {

std::string table_text(const std::string& title, const Grid& grid,
                       const std::vector<Measurement>& cells, double Measurement::*value) {
  std::vector<Table::Column> columns{{"size", Table::Align::kRight, 8}};
  for (const std::uint32_t depth : grid.depths) {
    std::string name = "  depth " + std::to_string(depth);
    name.resize(std::max<std::size_t>(name.size(), 10), ' ');
    columns.push_back({name, Table::Align::kRight, 10});
  }
  Table table(std::move(columns), " ");
  auto cell = cells.begin();
  for (const std::uint64_t size : grid.sizes) {
    std::vector<std::string> row{short_size_text(size)};
    for (std::size_t i = 0; i < grid.depths.size(); ++i) {
      const double number = (*cell++).*value;
      row.push_back(fixed_text(number, number < 100 ? 1 : 0));
    }
    table.add_row(std::move(row));
  }
  return '\n' + title + '\n' + table.text();
}

}  // namespace

std::string Grid::text() const {
  return std::string(sequential ? "sequential " : "random ") +
         (write_percent == 0     ? "reads"
          : write_percent == 100 ? "writes"
                                 : "reads and writes") +
         " over " + short_size_text(range_bytes);
}

std::vector<Measurement> measure_grid(const DeviceSpec& spec, const Grid& grid, int threads) {
  const std::size_t columns = grid.depths.size();
  std::vector<Measurement> cells(grid.sizes.size() * columns);
  parallel_for(static_cast<std::int64_t>(cells.size()), threads, [&](std::int64_t index) {
    const auto cell = static_cast<std::size_t>(index);
    const std::uint32_t depth = grid.depths[cell % columns];
    // Enough for a mean within about 1 %; fewer of the large ones, which spread over all dies.
    const std::uint64_t bytes = grid.sizes[cell / columns];
    const std::uint64_t requests =
        std::max<std::uint64_t>(bytes > (128 << 10) ? 1000 : 4000, 50 * std::uint64_t{depth});
    cells[cell] = measure(spec, {.bytes = bytes,
                                 .depth = depth,
                                 .requests = requests,
                                 .write_share = grid.write_percent / 100,
                                 .range_bytes = grid.range_bytes,
                                 .sequential = grid.sequential});
  });
  return cells;
}

std::string grid_text(const Grid& grid, const std::vector<Measurement>& cells) {
  const std::string what = grid.text();
  return table_text("Bandwidth of " + what + " (MB/s)", grid, cells, &Measurement::mb_s) +
         table_text("IOPS of " + what, grid, cells, &Measurement::iops) +
         table_text("Mean latency (us)", grid, cells, &Measurement::mean_us);
}

std::string grid_csv(const std::string& device, const Grid& grid,
                     const std::vector<Measurement>& cells) {
  std::string text =
      "device,range_bytes,bytes,depth,write_share,iops,mb_s,mean_us,p50_us,p90_us,p99_us,p999_us\n";
  std::string line;
  auto cell = cells.begin();
  for (const std::uint64_t size : grid.sizes) {
    for (const std::uint32_t depth : grid.depths) {
      const Measurement& m = *cell++;
      line = format_text(",%llu,%llu,%u,%g,%.1f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n",
                         static_cast<unsigned long long>(grid.range_bytes),
                         static_cast<unsigned long long>(size), depth, grid.write_percent / 100,
                         m.iops, m.mb_s, m.mean_us, m.p50_us, m.p90_us, m.p99_us, m.p999_us);
      text += device + line;
    }
  }
  return text;
}

}  // namespace kvreplay
