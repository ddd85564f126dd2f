#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/shell.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
CLI::Option* add_plot_option(CLI::App& command, std::string& file) {
  return command
      .add_option("--plot", file,
                  "Draw the result; the name ends in .png or .pdf (needs matplotlib)")
      ->type_name("FILE")
      ->check([](const std::string& name) {
        const std::string suffix = std::filesystem::path(name).extension().string();
        return suffix == ".png" || suffix == ".pdf" ? "" : name + " ends in neither .png nor .pdf";
      });
}

void plot_csv(const std::string& module, const std::string& csv, const std::string& title,
              const std::string& file) {
  const std::string command =
      "/usr/bin/python3 -B " + shell_quoted(source_folder() + "/tools/python/kvreplay") + " " +
      module + " - --title " + shell_quoted(title) + " --out " + shell_quoted(file);
  std::fflush(nullptr);
  std::FILE* pipe = ::popen(command.c_str(), "w");
  bool written = pipe != nullptr;
  if (written) {
    written = std::fwrite(csv.data(), 1, csv.size(), pipe) == csv.size();
    written = ::pclose(pipe) == 0 && written;
  }
  if (!written) {
    throw UserError({"", "--plot"}, "kvreplay." + module + " drew nothing",
                    "a file that can be written, /usr/bin/python3 and matplotlib");
  }
}

}  // namespace kvreplay
