#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "base/files.hpp"
#include "base/number_text.hpp"
#include "base/output_file.hpp"
#include "base/size.hpp"
#include "devices/calibration/sheet.hpp"
#include "devices/device_config.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

struct NewCommand {
  std::string spec;
  std::string base = "ufs40";
  std::string out;
  std::string title;
  std::string source;
  std::vector<std::string> sets;
  ConfigFolder configs = ConfigFolder::standard();
};

/// How the new file names its base: a name stays one, a path becomes relative to the file.
std::string base_text(const NewCommand& options, const std::string& base_file) {
  namespace fs = std::filesystem;
  const std::vector<std::string> known = options.configs.names("devices");
  if (std::find(known.begin(), known.end(), options.base) != known.end()) return options.base;
  const fs::path folder = fs::absolute(options.out).lexically_normal().parent_path();
  return "./" + fs::absolute(base_file).lexically_normal().lexically_relative(folder).string();
}

/// A number that is missed by more than a factor of two is none of such a device.
void check_possible(const SheetDevice& device, const std::string& base) {
  for (const SheetPoint& point : device.points) {
    if (point.model > 0 && point.model <= 2 * point.sheet && point.model >= point.sheet / 2) {
      continue;
    }
    const auto text = [&](double value) { return shortest_text(value) + " " + point.unit; };
    throw UserError({"--from-spec", ""},
                    point.key + " is " + text(point.sheet) + ", but " +
                        text(std::stod(format_text("%.3g", point.model))) +
                        " is the nearest that the other numbers, with what is " + base +
                        "'s, allow",
                    "numbers of one device, or another --base or --set");
  }
}

/// Random requests, at the depths of the sheet and where its requests lie.
std::string describe_words(const SheetDevice& device) {
  std::set<std::uint32_t> depths{1};
  std::uint64_t range = 0;
  for (const SheetPoint& point : device.points) {
    depths.insert(point.workload.depth);
    range = std::max(range, point.workload.range_bytes);
  }
  std::vector<std::string> texts;
  for (const std::uint32_t depth : depths) texts.push_back(std::to_string(depth));
  return " --range " + short_size_text(range) + " --depth " + join(texts, ",");
}

void make_device(const NewCommand& options) {
  check_is_new(options.out);
  const std::string base_file = options.configs.file("devices", options.base, {"--base", ""});
  const DataSheet sheet = DataSheet::parse(options.spec, {"--from-spec", ""});
  const ConfigNode base = with_sets(options.configs.load("devices", base_file), options.sets);
  SheetDevice device = solve_sheet(base, sheet);
  check_possible(device, options.base);
  device.given = options.sets;
  const std::string title =
      options.title.empty() ? "device of a data sheet: " + options.spec : options.title;
  const std::string source =
      options.source.empty() ? "kvreplay device new --from-spec " + options.spec : options.source;
  const std::string json = sheet_json(device, base_text(options, base_file), title, source);
  write_text_file(options.out, json);
  static_cast<void>(DeviceSpec::load(options.out, options.configs));  // what is written can be read
  std::cout << sheet_text(device);
  for (const SheetPoint& point : device.points) {
    if (std::abs(point.error()) < 0.03) continue;
    std::cerr << "kvreplay: warning: " << point.key << " is "
              << fixed_text(100 * std::abs(point.error()), 1)
              << " % off: the sheet's numbers, with what is " << options.base
              << "'s, do not go together; another --base or --set may\n";
  }
  std::cerr << "kvreplay: wrote " << options.out << "; `kvreplay device describe " << options.out
            << describe_words(device) << "` shows what it reaches\n";
}

}  // namespace

void add_device_new(CLI::App& device) {
  CLI::App* command = device.add_subcommand(
      "new",
      "Make a device model that has the numbers of a data sheet, on the base of another one");
  auto options = std::make_shared<NewCommand>();
  command
      ->add_option(
          "--from-spec", options->spec,
          "The numbers of the sheet, of which each may be left out: " + DataSheet::keys_text())
      ->required()
      ->type_name("KEY=VALUE,...");
  command
      ->add_option("--base", options->base,
                   "Source of everything that the sheet does not say: a file or a name from `list "
                   "devices`, nearest in kind")
      ->type_name("DEVICE")
      ->capture_default_str();
  command->add_option("--out", options->out, "The device file to write")
      ->required()
      ->type_name("FILE");
  command->add_option("--title", options->title, "What it is, in a line (default: the numbers)")
      ->type_name("TEXT");
  command->add_option("--source", options->source, "Where the numbers are from")->type_name("TEXT");
  add_set_option(*command, options->sets);
  add_configs_option(*command, options->configs);
  command->footer(
      "The parameters are solved so that the model gives the numbers; what remains of an error is "
      "printed.\n"
      "The file has a \"base\" and only what differs from it.\n"
      "Examples:\n"
      "  kvreplay device new --from-spec read=4300MB/s,write=4000MB/s,random_read=500kIOPS --base "
      "ufs40 --out ufs41.json\n"
      "  kvreplay device new --from-spec read=7000MB/s,write=5100MB/s,random_read=1000kIOPS "
      "--base nvme_pc4 --out nvme.json\n"
      "  kvreplay run first --set device=./ufs41.json");
  command->callback([options] { make_device(*options); });
}

}  // namespace kvreplay
