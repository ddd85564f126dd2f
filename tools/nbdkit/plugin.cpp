// An nbdkit plugin that serves a modelled device in real time. docs/served-devices.md says how to
// use it, and how far to trust it.

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/output_file.hpp"
#include "devices/device_config.hpp"
#include "devices/served/real_time_device.hpp"
#include "tools/nbdkit/options.hpp"
#include "tools/nbdkit/store.hpp"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace kvreplay {
namespace {

constexpr std::int64_t kDefaultBytes = std::int64_t{4} << 30;
constexpr std::uint32_t kMaxRequest = 32 << 20;  ///< a limit that every NBD client accepts

PluginOptions options;
std::string device_name;
std::unique_ptr<Store> store;
std::unique_ptr<RealTimeDevice> device;

/// Runs `work`. An exception becomes nbdkit's one-line error and the result `failed`.
template <typename Result, typename Work>
Result guarded(Result failed, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    nbdkit_error("%s", error.what());
    return failed;
  }
}

std::string absolute(const std::string& path) {
  char* found = nbdkit_absolute_path(path.c_str());  // nbdkit may change its folder
  if (found == nullptr) throw UserError({path, ""}, "no path", "the path of a file");
  std::string text = found;
  std::free(found);
  return text;
}

int config(const char* key, const char* value) {
  return guarded(-1, [&] {
    options.set(key, value, absolute);
    return 0;
  });
}

int config_complete() {
  return guarded(-1, [] {
    if (options.device.empty()) {
      throw UserError({"", "device"}, "missing", "a name from `kvreplay list devices`, or a file");
    }
    const std::string file =
        ConfigFolder(options.configs).file("devices", options.device, {"", "device"});
    const DeviceSpec spec = DeviceSpec::load(file);
    device_name = spec.name;
    device = std::make_unique<RealTimeDevice>(
        spec, std::chrono::nanoseconds(static_cast<std::int64_t>(options.spin_us * 1000)));

    const std::uint64_t block = device->limits().logical_block_bytes;
    if (options.bytes % block != 0) {
      throw UserError({"", "size"}, "found " + std::to_string(options.bytes),
                      "a multiple of the logical block of " + spec.name + ", " +
                          std::to_string(block) + " bytes");
    }
    if (options.file.empty()) {
      store = memory_store(options.bytes > 0 ? options.bytes : kDefaultBytes);
    } else {
      store = file_store(options.file, options.bytes, block);
    }
    return 0;
  });
}

nlohmann::ordered_json report_json(const ServiceReport& report) {
  return {
      {"device", device_name},
      {"size_bytes", store->bytes()},
      {"store", options.file.empty() ? "memory" : options.file},
      {"seconds", report.seconds},
      {"reads",
       {{"requests", report.read_requests},
        {"bytes", report.read_bytes},
        {"modelled_mean_us", report.read_mean_us}}},
      {"writes",
       {{"requests", report.write_requests},
        {"bytes", report.write_bytes},
        {"modelled_mean_us", report.write_mean_us}}},
      {"timer_error_us",
       {{"mean", report.error_mean_us},
        {"p50", report.error_p50_us},
        {"p90", report.error_p90_us},
        {"p99", report.error_p99_us},
        {"p999", report.error_p999_us}}},
      {"late_requests", report.late_requests},
      {"late_above_us", std::chrono::duration<double, std::micro>(RealTimeDevice::kLate).count()},
      {"largest_lag_us", report.error_max_us},
      {"spin_us", options.spin_us},
      {"counters",
       {{"read_commands", report.counters.read_commands},
        {"write_commands", report.counters.write_commands},
        {"host_read_bytes", report.counters.host_read_bytes},
        {"host_write_bytes", report.counters.host_write_bytes},
        {"flash_read_bytes", report.counters.flash_read_bytes},
        {"flash_write_bytes", report.counters.flash_write_bytes}}},
  };
}

std::string one_line(const ServiceReport& report) {
  const std::uint64_t requests = report.read_requests + report.write_requests;
  if (requests == 0) return device_name + ": no requests";
  const double modelled_mean_us =
      (static_cast<double>(report.read_requests) * report.read_mean_us +
       static_cast<double>(report.write_requests) * report.write_mean_us) /
      static_cast<double>(requests);
  // Beyond 1 % the machine is the bottleneck: docs/served-devices.md.
  const bool overtaxed = report.late_requests * 100 > requests;
  char text[400];
  std::snprintf(text, sizeof text,
                "%s: %llu requests, modelled mean %.1f us, timer error mean %.1f us, p99 %.0f us; "
                "%llu later than %lld us%s, largest lag %.0f us",
                device_name.c_str(), static_cast<unsigned long long>(requests), modelled_mean_us,
                report.error_mean_us, report.error_p99_us,
                static_cast<unsigned long long>(report.late_requests),
                static_cast<long long>(RealTimeDevice::kLate.count() / 1000),
                overtaxed ? " (the machine did not keep up)" : "", report.error_max_us);
  return text;
}

/// Called after the last connection has closed.
void cleanup() {
  guarded(0, [] {
    if (!device || !store) return 0;
    const ServiceReport report = device->report();
    std::fprintf(stderr, "kvreplay: %s\n", one_line(report).c_str());
    if (!options.report.empty()) {
      write_text_file(options.report, report_json(report).dump(2) + "\n");
    }
    return 0;
  });
}

void unload() {
  device.reset();
  store.reset();
}

void* open_connection(int /*readonly*/) {
  return NBDKIT_HANDLE_NOT_NEEDED;
}

/// The description that `nbdinfo --list` shows.
const char* export_description(void* /*handle*/) {
  return guarded<const char*>(
      nullptr, [] { return nbdkit_strdup_intern(one_line(device->report()).c_str()); });
}

std::int64_t get_size(void* /*handle*/) {
  return static_cast<std::int64_t>(store->bytes());
}

int block_size(void* /*handle*/, std::uint32_t* minimum, std::uint32_t* preferred,
               std::uint32_t* maximum) {
  // NBD wants powers of two. Requests of other sizes are served all the same, rounded outward to
  // logical blocks in the model.
  *minimum = std::bit_floor(device->limits().logical_block_bytes);
  *preferred = std::max(*minimum, std::uint32_t{4096});
  *maximum = kMaxRequest;
  return 0;
}

int can_write(void* /*handle*/) {
  return store->writable() ? 1 : 0;
}

int yes(void* /*handle*/) {
  return 1;
}

int can_fua(void* /*handle*/) {
  return NBDKIT_FUA_NATIVE;
}

/// Moves the data while the modelled device works, then waits for it.
template <typename Transfer>
int serve(std::uint32_t count, std::uint64_t offset, bool write, const Transfer& transfer) {
  return guarded(-1, [&] {
    RealTimeDevice::Request request;
    device->start(request, {offset, count}, write);
    const int failure = transfer();
    device->finish(request);
    if (failure == 0) return 0;
    nbdkit_error("%s: %s", options.file.c_str(), std::strerror(failure));
    nbdkit_set_error(failure);
    return -1;
  });
}

int pread(void* /*handle*/, void* buffer, std::uint32_t count, std::uint64_t offset,
          std::uint32_t /*flags*/) {
  return serve(count, offset, false, [&] { return store->read(buffer, count, offset); });
}

int pwrite(void* /*handle*/, const void* buffer, std::uint32_t count, std::uint64_t offset,
           std::uint32_t /*flags*/) {
  return serve(count, offset, true, [&] { return store->write(buffer, count, offset); });
}

/// A write that has been acknowledged is stored in the model, so there is nothing to wait for.
int flush(void* /*handle*/, std::uint32_t /*flags*/) {
  return 0;
}

/// Takes no modelled time.
int trim(void* /*handle*/, std::uint32_t count, std::uint64_t offset, std::uint32_t /*flags*/) {
  store->trim(count, offset);
  return 0;
}

constexpr char kHelp[] =
    "[device=]<DEVICE>  (required)  A name from `kvreplay list devices`, or a JSON file.\n"
    "size=<SIZE>        Size of the device: 512M, 4GiB ... (default: the file's, or 4GiB).\n"
    "file=<FILE>        File with its bytes (default: memory, allocated as it is written).\n"
    "spin_us=<US>       Spin instead of sleeping this long before an event, 0 to 10000 us\n"
    "                   (default 50).\n"
    "report=<FILE>      JSON written at exit: what was served, and how well time was kept.\n"
    "configs=<DIR>      Folder in which names are looked up.";

nbdkit_plugin plugin() {
  nbdkit_plugin made{};
  made.name = "kvreplay";
  made.longname = "modelled flash device in real time";
  made.version = KVREPLAY_VERSION;
  made.description = "Replies when the modelled device would.";
  made.unload = unload;
  made.config = config;
  made.config_complete = config_complete;
  made.config_help = kHelp;
  made.magic_config_key = "device";
  made.open = open_connection;
  made.export_description = export_description;
  made.get_size = get_size;
  made.block_size = block_size;
  made.can_write = can_write;
  made.can_flush = yes;
  made.can_fua = can_fua;
  made.can_trim = yes;
  made.can_multi_conn = yes;
  made.pread = pread;
  made.pwrite = pwrite;
  made.flush = flush;
  made.trim = trim;
  made.cleanup = cleanup;
  return made;
}

nbdkit_plugin registered = plugin();

}  // namespace
}  // namespace kvreplay

NBDKIT_REGISTER_PLUGIN(kvreplay::registered)
