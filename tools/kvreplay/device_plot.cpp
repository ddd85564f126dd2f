#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/shell.hpp"
#include "tools/kvreplay/device.hpp"
#include "tools/kvreplay/python_tool.hpp"

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
  std::string command;
  const std::string arguments[] = {"-", "--title", title, "--out", file};
  for (const std::string& word : python_tool_words(module, arguments)) {
    command += shell_quoted(word) + " ";
  }
  std::fflush(nullptr);
  std::FILE* pipe = ::popen(command.c_str(), "w");
  bool written = pipe != nullptr;
  if (written) {
    written = std::fwrite(csv.data(), 1, csv.size(), pipe) == csv.size();
    written = ::pclose(pipe) == 0 && written;
  }
  if (!written) {
    throw UserError({"", "--plot"}, "kvreplay." + module + " drew nothing",
                    "a file that can be written, and Python 3 with matplotlib");
  }
}

}  // namespace kvreplay
