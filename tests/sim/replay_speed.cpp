// Our side of tools/scripts/compare-replay. Reads one line at a time: a work with its arguments,
// which prepares it and answers "ready", or "run", which does it once and answers with the seconds
// of processor time that it took and a count. The script runs a peer between two runs, so that
// other load of the machine meets both.
//
//   cache RECORDS PART BYTES               counts misses of the records of `export-accesses`
//   device PRESET BYTES DEPTH REQUESTS GB  counts random reads in a closed loop, over GB of range

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/build_info.hpp"
#include "devices/calibration/measure.hpp"
#include "policies/place/cache/cache.hpp"

namespace kvreplay {
namespace {

/// Returns what was counted.
using Work = std::function<std::uint64_t()>;

constexpr std::size_t kRecordBytes = 24;

struct Record {
  std::uint32_t step = 0;
  Access access;
};

Record record_at(const char* bytes) {
  Record record;
  std::uint64_t object = 0;
  std::uint32_t size = 0;
  std::memcpy(&record.step, bytes, sizeof record.step);
  std::memcpy(&object, bytes + 4, sizeof object);
  std::memcpy(&size, bytes + 12, sizeof size);
  record.access = {{static_cast<std::int32_t>(object >> 32), static_cast<GroupId>(object)}, size};
  return record;
}

Work replay_cache(std::istream& arguments) {
  std::string file;
  std::string part;
  std::int64_t capacity = 0;
  arguments >> file >> part >> capacity;
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  if (bytes.empty() || bytes.size() % kRecordBytes != 0) {
    throw std::runtime_error(file + " has no records of 24 bytes");
  }
  const auto config = PartConfig<Cache>::parse(ConfigNode::parse(
      R"({"part": ")" + part + R"(", "capacity_bytes": )" + std::to_string(capacity) +
          (part == "belady" ? R"(, "always_keep": true})" : "}"),
      "cache"));
  std::int64_t streams = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kRecordBytes) {
    streams = std::max<std::int64_t>(streams, record_at(bytes.data() + at).access.key.stream + 1);
  }
  return [bytes, config, streams] {
    const auto cache = config.make({.streams = streams, .entry_bytes = 1});
    if (cache->needs_future()) {
      std::vector<Access> future;
      for (std::size_t at = 0; at < bytes.size(); at += kRecordBytes) {
        future.push_back(record_at(bytes.data() + at).access);
      }
      cache->set_future_accesses(future);
    }
    std::uint64_t misses = 0;
    std::uint32_t step = record_at(bytes.data()).step;
    for (std::size_t at = 0; at < bytes.size(); at += kRecordBytes) {
      const Record record = record_at(bytes.data() + at);
      if (record.step != step) cache->end_step();
      step = record.step;
      if (!cache->access(record.access, {})) ++misses;
    }
    return misses;
  };
}

Work simulate_device(std::istream& arguments) {
  std::string preset;
  Workload workload;
  std::uint64_t gigabytes = 0;
  arguments >> preset >> workload.bytes >> workload.depth >> workload.requests >> gigabytes;
  workload.range_bytes = gigabytes << 30;
  const DeviceSpec spec =
      DeviceSpec::load(source_folder() + "/configs/devices/" + preset + ".json");
  return [spec, workload] { return measure(spec, workload).requests; };
}

Work prepare(std::istream& line) {
  std::string name;
  line >> name;
  if (name == "cache") return replay_cache(line);
  if (name == "device") return simulate_device(line);
  throw std::runtime_error("unknown work '" + name + "'; allowed: cache, device");
}

}  // namespace
}  // namespace kvreplay

int main() {
  kvreplay::Work work;
  std::string line;
  try {
    while (std::getline(std::cin, line)) {
      if (line != "run") {
        std::istringstream arguments(line);
        work = kvreplay::prepare(arguments);
        std::cout << "ready" << std::endl;
        continue;
      }
      const std::clock_t start = std::clock();
      const std::uint64_t count = work();
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      std::cout << seconds << ' ' << count << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << "kvreplay_replay_speed: " << error.what() << '\n';
    return 2;
  }
}
