#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/output_file.hpp"
#include "sim/replay/results.hpp"

namespace kvreplay {

using nlohmann::json;

namespace {

constexpr const char* kFile = "shard.json";
constexpr const char* kFormat = "kvreplay-shard-2";
constexpr const char* kWrittenBy = "a file of `kvreplay sweep --shard`";
constexpr const char* kResultFiles[] = {"results.csv", "results.json", "quality.csv", "table.txt",
                                        "manifest.json"};

/// Throws UserError unless shard.json and the results beside it are as write_shard() left them.
void check_sums(json document, const std::string& folder, const std::string& file) {
  const std::string sum = document.at("sha256");
  document.erase("sha256");
  if (sha256_text(document.dump()) != sum) {
    throw UserError({file, "/sha256"}, "does not match its content", "an undamaged shard");
  }
  for (const char* name : kResultFiles) {
    const std::string beside = (std::filesystem::path(folder) / name).string();
    if (json(sha256_file(beside)) != document.at("files").at(name)) {
      throw UserError({beside, ""}, "is not the one that " + file + " was written with",
                      "an undamaged shard");
    }
  }
}

json to_json(const ResultTable& table, const std::vector<std::size_t>& places) {
  json heads = json::array();
  for (const ResultTable::Head& head : table.columns) heads.push_back({head.name, head.decimals});
  json rows = json::array();
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    json row = json::array({places[i]});
    for (const CellValue& value : table.rows[i]) {
      std::visit([&](const auto& scalar) { row.push_back(scalar); }, value);
    }
    rows.push_back(std::move(row));
  }
  return {{"columns", std::move(heads)}, {"rows", std::move(rows)}};
}

/// In JSON, a real keeps its point and NaN becomes null, so that reading restores a value's type.
CellValue value_from(const json& value) {
  if (value.is_null()) return std::nan("");
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.get<std::string>();
}

/// One of a shard's tables, with the place of each row in the whole.
struct PlacedTable {
  std::vector<ResultTable::Head> columns;
  std::multimap<std::size_t, std::vector<CellValue>> rows;
};

PlacedTable table_from(const json& document) {
  PlacedTable table;
  for (const json& head : document.at("columns")) {
    table.columns.push_back({head.at(0).get<std::string>(), head.at(1).get<int>()});
  }
  for (const json& row : document.at("rows")) {
    std::vector<CellValue> values;
    for (std::size_t i = 1; i < row.size(); ++i) values.push_back(value_from(row[i]));
    if (values.size() != table.columns.size()) throw json::other_error::create(501, "", &row);
    table.rows.emplace(row.at(0).get<std::size_t>(), std::move(values));
  }
  return table;
}

struct ShardFile {
  std::string folder;
  std::size_t index = 0;
  std::size_t count = 0;
  std::size_t cells_of_all = 0;
  std::string config_sha256;
  std::string manifest;
  PlacedTable cells;
  PlacedTable layers;
};

ShardFile read_shard(const std::string& folder) {
  const std::string file = (std::filesystem::path(folder) / kFile).string();
  try {
    const json document = json::parse(read_text_file(file, kWrittenBy));
    if (document.at("format") != kFormat) {
      throw UserError({file, "/format"}, "found " + document.at("format").dump(), kFormat);
    }
    check_sums(document, folder, file);
    ShardFile shard;
    shard.folder = folder;
    shard.index = document.at("index");
    shard.count = document.at("count");
    shard.cells_of_all = document.at("cells_of_all");
    shard.config_sha256 = document.at("run").dump();
    shard.cells = table_from(document.at("cells"));
    shard.layers = table_from(document.at("layers"));
    shard.manifest =
        read_text_file((std::filesystem::path(folder) / "manifest.json").string(), kWrittenBy);
    return shard;
  } catch (const json::exception&) {
    throw UserError({file, ""}, "is no shard", "shard.json as `kvreplay sweep --shard` writes it");
  }
}

/// Checks that these are all shards of one run, each once.
void check(const std::vector<ShardFile>& shards) {
  const ShardFile& first = shards.front();
  std::map<std::size_t, std::string> folder_of;
  for (const ShardFile& shard : shards) {
    if (shard.config_sha256 != first.config_sha256 || shard.count != first.count ||
        shard.cells_of_all != first.cells_of_all) {
      throw UserError({shard.folder, ""}, "is of another run than " + first.folder,
                      "shards of one experiment, of equal settings, traces and program");
    }
    const auto [there, is_new] = folder_of.emplace(shard.index, shard.folder);
    if (!is_new) {
      throw UserError({shard.folder, ""},
                      "is shard " + std::to_string(shard.index) + ", as " + there->second + " is",
                      "each shard once");
    }
  }
  for (std::size_t index = 1; index <= first.count; ++index) {
    if (folder_of.contains(index)) continue;
    throw UserError(
        {first.folder, ""},
        "shard " + std::to_string(index) + " of " + std::to_string(first.count) + " is missing",
        "all shards of the run");
  }
}

/// Takes every place once, from the first shard that has it. Rows of one place keep their order.
ResultTable merged(const std::vector<ShardFile>& shards, PlacedTable ShardFile::*member) {
  std::map<std::size_t, const ShardFile*> source;
  ResultTable table;
  for (const ShardFile& shard : shards) {
    const PlacedTable& part = shard.*member;
    // A shard without cells knows no swept columns.
    if (table.columns.empty() || !part.rows.empty()) table.columns = part.columns;
    for (const auto& [place, row] : part.rows) source.emplace(place, &shard);
  }
  for (const auto& [place, shard] : source) {
    const auto [begin, end] = (shard->*member).rows.equal_range(place);
    for (auto row = begin; row != end; ++row) table.rows.push_back(row->second);
  }
  return table;
}

}  // namespace

void write_shard(const std::string& folder, const Experiment& experiment,
                 const ReplayResult& result, const Shard& shard) {
  const json manifest = json::parse(manifest_json(experiment, result));
  json document{{"format", kFormat},
                {"index", shard.index},
                {"count", shard.count},
                {"cells_of_all", experiment.cells.size()},
                {"cells", to_json(result_rows(result.cells), result.cell_numbers)},
                {"layers", to_json(quality_rows(result.layers), result.layer_blocks)}};
  // What must be equal in all shards; the host may differ.
  for (const char* name : {"config_sha256", "traces", "kvreplay_version", "sources_sha256"}) {
    document["run"][name] = manifest.at(name);
  }
  for (const char* name : kResultFiles) {
    document["files"][name] = sha256_file((std::filesystem::path(folder) / name).string());
  }
  document["sha256"] = sha256_text(document.dump());
  write_text_file((std::filesystem::path(folder) / kFile).string(), document.dump() + '\n');
}

ResultTable merge_shards(std::span<const std::string> folders, const std::string& out) {
  std::vector<ShardFile> shards;
  for (const std::string& folder : folders) shards.push_back(read_shard(folder));
  check(shards);
  std::sort(shards.begin(), shards.end(),
            [](const ShardFile& a, const ShardFile& b) { return a.index < b.index; });
  ResultTable cells = merged(shards, &ShardFile::cells);
  if (cells.rows.size() != shards.front().cells_of_all) {
    throw UserError({shards.front().folder, ""},
                    "the shards have " + std::to_string(cells.rows.size()) + " cells",
                    std::to_string(shards.front().cells_of_all));
  }
  write_results(out, cells, merged(shards, &ShardFile::layers), shards.front().manifest);
  return cells;
}

}  // namespace kvreplay
