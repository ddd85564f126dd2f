#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files.hpp"
#include "base/output_file.hpp"
#include "sim/time/model_config.hpp"
#include "sim/time/model_spec.hpp"
#include "tools/kvreplay/commands.hpp"

namespace kvreplay {
namespace {

struct FromConfig {
  std::string config;
  std::string out;
  std::string title;
  std::string source;
};

void convert_config(const FromConfig& options) {
  namespace fs = std::filesystem;
  check_is_new(options.out);
  const std::string file = fs::is_directory(options.config)
                               ? (fs::path(options.config) / "config.json").string()
                               : options.config;
  const ConfigNode config = ConfigNode::load(file);
  const std::string name = fs::path(options.out).stem().string();
  std::string of_config;
  if (config.has("_name_or_path") && config.at("_name_or_path").raw().is_string()) {
    of_config = config.at("_name_or_path").text();
  }
  const ConvertedModel model = model_of_config(config, options.title.empty() ? name : options.title,
                                               !options.source.empty() ? options.source
                                               : !of_config.empty()    ? "Hugging Face " + of_config
                                                                       : name);
  // What is written can be read.
  const ModelSpec spec = ModelSpec::parse(ConfigNode::parse(model.json, options.out), name);
  write_text_file(options.out, model.json);
  for (const std::string& note : model.notes) std::cerr << "kvreplay: note: " << note << '\n';
  std::cout << name << ": " << spec.layers << " layers, " << spec.attention_layers() << " attend; "
            << spec.query_heads << " query heads, " << spec.kv_heads << " KV heads of "
            << spec.head_dim << "; "
            << std::floor(static_cast<double>(spec.weight_bytes()) * 1e-6) / 1000
            << " GB of weights\n";
  std::cerr << "kvreplay: wrote " << options.out << "; `kvreplay run first --set model=./"
            << fs::path(options.out).lexically_normal().string() << "` uses it\n";
}

}  // namespace

void add_model(CLI::App& program) {
  CLI::App* model =
      program.add_subcommand("model", "Make a model file of another program's description");
  model->require_subcommand(1);
  CLI::App* command = model->add_subcommand(
      "from-config", "Make a model file of a Hugging Face config.json; no weights are needed");
  auto options = std::make_shared<FromConfig>();
  command->add_option("CONFIG", options->config, "A config.json, or the folder that it is in")
      ->required()
      ->type_name("");
  command->add_option("--out", options->out, "The model file to write; its name is the model's")
      ->required()
      ->type_name("FILE");
  command->add_option("--title", options->title, "What it is, in a line (default: its name)")
      ->type_name("TEXT");
  command
      ->add_option("--source", options->source,
                   "Where the config is from, such as 'Hugging Face Qwen/Qwen3-0.6B' (default: "
                   "what it says itself)")
      ->type_name("TEXT");
  command->footer(
      "Each number of the file names the member that it is from. What a model file cannot say, "
      "such\n"
      "as multi-head latent attention, is refused by name (docs/models.md).\n"
      "Example:\n"
      "  kvreplay model from-config Qwen3-0.6B/config.json --out mine.json\n"
      "  kvreplay run first --set model=./mine.json");
  command->callback([options] { convert_config(*options); });
}

}  // namespace kvreplay
