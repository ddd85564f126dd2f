#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/build_info.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "base/rank_correlation.hpp"
#include "sim/models/closed_loop.hpp"
#include "sim/models/record.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/evaluation.hpp"
#include "tools/kvreplay/model_files.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {
namespace {

/// Means over steps, layers and query heads of the replay of a recording.
struct OpenLoop {
  double attention_mass = 0;
  double output_error = 0;
  double recall = 0;
};

double mean(std::span<const float> values, double sum, std::int64_t& count) {
  count += std::ssize(values);
  return std::accumulate(values.begin(), values.end(), sum);
}

OpenLoop summarise(const AccessLog& log) {
  OpenLoop result;
  std::int64_t count = 0;
  std::int64_t ignored = 0;
  for (const LayerLog& layer : log.layers) {
    result.attention_mass = mean(layer.quality.attention_mass, result.attention_mass, count);
    result.output_error = mean(layer.quality.output_error, result.output_error, ignored);
    result.recall = mean(layer.quality.recall, result.recall, ignored);
  }
  const auto n = static_cast<double>(count);
  return {result.attention_mass / n, result.output_error / n, result.recall / n};
}

/// How alike a measure of each loop orders the cells.
struct RankRow {
  std::string closed_loop;
  std::string open_loop;
  double spearman = 0;
  double kendall = 0;
};

std::vector<RankRow> compare_ranks(std::span<const ClosedLoopRun> runs,
                                   std::span<const OpenLoop> open) {
  std::vector<double> kl;
  std::vector<double> perplexity;
  std::vector<double> error;
  std::vector<double> lost_mass;
  std::vector<double> lost_recall;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    kl.push_back(runs[i].mean_kl());
    perplexity.push_back(runs[i].perplexity());
    error.push_back(open[i].output_error);
    lost_mass.push_back(1 - open[i].attention_mass);
    lost_recall.push_back(1 - open[i].recall);
  }
  std::vector<RankRow> rows;
  for (const auto& [closed, a] : {std::pair{"kl_nats", &kl}, {"perplexity", &perplexity}}) {
    for (const auto& [opened, b] : {std::pair{"output_error", &error},
                                    {"1-attention_mass", &lost_mass},
                                    {"1-recall", &lost_recall}}) {
      rows.push_back({closed, opened, spearman(*a, *b), kendall(*a, *b)});
    }
  }
  return rows;
}

std::string manifest(const EvaluateOptions& options, const Model& model, const ModelText& text,
                     std::span<const EvaluationCell> cells) {
  nlohmann::ordered_json json;
  json["model"] = model.name();
  json["weights_sha256"] = model.source_sha256();
  json["text_source"] = text.source;
  json["text_sha256"] = text.sha256;
  json["prompt_tokens"] = options.prompt;
  json["steps"] = options.steps;
  json["seed"] = options.seed;
  json["adapter_trace"] =
      options.adapter_trace.empty() ? "" : TraceReader(options.adapter_trace).content_hash();
  for (const EvaluationCell& cell : cells) {
    json["systems"][cell.decide.name] = nlohmann::json::parse(cell.decide.spec.resolved());
  }
  json["kvreplay_version"] = version();
  return json.dump(2) + '\n';
}

void evaluate_text(const EvaluateOptions& options, const Model& model, const ModelText& text,
                   std::span<const EvaluationCell> cells, const ResultFolder& folder) {
  check_text(model, text.ids, options.prompt, options.steps, options.prompt + options.steps);
  const std::vector<NamedDecideSpec> specs = specs_of(cells);
  const OwnTrace own(options, model, text, options.prompt, options.steps, folder);
  ClosedLoopResult closed;
  {
    ClosedLoopOptions loop{.ids = text.ids,
                           .prompt_tokens = options.prompt,
                           .steps = options.steps,
                           .adapters = &own.adapters(),
                           .seed = options.seed,
                           .threads = options.threads};
    Progress progress("closed loop",
                      closed_loop_work(model.architecture(), std::ssize(cells), loop));
    loop.progress = &progress;
    closed = run_closed_loop(model, specs, loop);
  }
  std::vector<OpenLoop> open;
  {
    Progress progress("open loop", std::ssize(own.trace().info().recorded_layers) * options.steps);
    for (const AccessLog& log :
         decide(own.trace(), specs,
                {.seed = options.seed, .threads = options.threads, .progress = &progress})) {
      open.push_back(summarise(log));
    }
  }

  const std::vector<ClosedLoopRun>& runs = closed.systems;
  std::vector<Column> columns = cell_columns(cells);
  const auto add = [&](const char* name, int decimals, std::function<double(std::size_t)> value) {
    columns.push_back({name, [value = std::move(value)](std::size_t i) { return number(value(i)); },
                       decimals, true});
  };
  add("attended_tokens", 1, [&](std::size_t i) { return runs[i].attended_tokens; });
  add("stored_bits", 2, [&](std::size_t i) { return runs[i].stored_bits; });
  add("perplexity", 4, [&](std::size_t i) { return runs[i].perplexity(); });
  add("full_perplexity", 4, [&](std::size_t) { return closed.full.perplexity(); });
  add("kl_nats", 5, [&](std::size_t i) { return runs[i].mean_kl(); });
  add("agreement", 4, [&](std::size_t i) { return runs[i].agreement(closed.full); });
  add("attention_mass", 4, [&](std::size_t i) { return open[i].attention_mass; });
  add("output_error", 4, [&](std::size_t i) { return open[i].output_error; });
  add("recall", 4, [&](std::size_t i) { return open[i].recall; });

  std::string steps = "system,budget,budget_unit,step,log_probability,kl_nats,likeliest\n";
  const auto add_steps = [&](const ClosedLoopRun& run, const std::string& key) {
    for (std::size_t s = 0; s < run.likeliest.size(); ++s) {
      steps += key + ',' + std::to_string(s) + ',' +
               number(static_cast<double>(run.log_probability[s])) + ',' +
               number(static_cast<double>(run.kl_divergence[s])) + ',' +
               std::to_string(run.likeliest[s]) + '\n';
    }
  };
  add_steps(closed.full, "full,,");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    add_steps(runs[i], cells[i].system + ',' + cells[i].budget + ',' + cells[i].unit);
  }
  const std::vector<RankRow> ranks = compare_ranks(runs, open);
  const std::vector<Column> rank_columns{
      {"closed_loop", [&](std::size_t i) { return ranks[i].closed_loop; }, 0, false},
      {"open_loop", [&](std::size_t i) { return ranks[i].open_loop; }, 0, false},
      {"cells", [&](std::size_t) { return std::to_string(cells.size()); }, 0, true},
      {"spearman", [&](std::size_t i) { return number(ranks[i].spearman); }, 3, true},
      {"kendall", [&](std::size_t i) { return number(ranks[i].kendall); }, 3, true}};
  const std::string shown = table(columns, cells.size()) +
                            "\nRank correlation of the two loops; 1 is the same order:\n" +
                            table(rank_columns, ranks.size());
  write(folder, "closed_loop.csv", csv(columns, cells.size()));
  write(folder, "steps.csv", steps);
  write(folder, "ranks.csv", csv(rank_columns, ranks.size()));
  write(folder, "table.txt", shown);
  std::cout << shown;
}

void evaluate(EvaluateOptions options) {
  const Model model(find_model(options.model));
  if (options.threads == 0) options.threads = processor_count();
  const std::vector<EvaluationCell> cells = make_cells(options);
  const ModelText text = load_text(options.text, model);
  const std::string name = options.needle ? "needle" : "closed-loop";
  ResultFolder folder = options.out.empty() ? ResultFolder::numbered("results/" + name)
                                            : ResultFolder::at(options.out);
  const auto run = options.needle ? evaluate_needles : evaluate_text;
  run(options, model, text, cells, folder);
  write(folder, "manifest.json", manifest(options, model, text, cells));
  std::cerr << "kvreplay: results in " << folder.commit() << '\n';
}

}  // namespace

void add_evaluate(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "evaluate", "Run a model with each system inside its attention: perplexity, KL, needles");
  auto options = std::make_shared<EvaluateOptions>();
  const auto list = [](CLI::Option* option, const char* type) {
    return option->delimiter(',')->allow_extra_args(false)->type_name(type);
  };
  command
      ->add_option("--model", options->model,
                   "A model of fetch-model by name, or a file of tools/scripts/import_model.py")
      ->required()
      ->type_name("NAME|FILE");
  add_text_options(*command, options->text);
  list(command->add_option("--systems", options->systems, "Names of `list systems`, or files"),
       "NAME,NAME")
      ->required();
  list(command
           ->add_option("--budgets", options->budgets,
                        "Token budgets, for systems that have one (default: each system's own)")
           ->check(in_range(std::int64_t{1}, std::int64_t{1} << 30)),
       "N,N");
  list(command
           ->add_option("--bits", options->bits,
                        "Bits of a stored element, for systems whose budget that is (default: "
                        "each system's own)")
           ->check(in_range(1, 16)),
       "N,N");
  command
      ->add_option("--set", options->sets,
                   "A row for each value of a parameter, in place of the system's budget; its unit "
                   "is then the parameter's name")
      ->allow_extra_args(false)
      ->type_name("SYSTEM.PART.PARAMETER=VALUE,VALUE");
  command->add_option("--prompt", options->prompt, "Prompt tokens, under full attention")
      ->check(in_range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--steps", options->steps, "Decode steps, under each system")
      ->check(in_range(std::int64_t{2}, std::int64_t{1} << 30))
      ->type_name("N")
      ->capture_default_str();
  takes_traces(
      command->add_option("--adapter-trace", options->adapter_trace,
                          "A recording of another text by the same model, all layers: low-rank and "
                          "PCA matrices are made from it"))
      ->type_name("TRACE");
  command->add_flag("--needle", options->needle,
                    "Plant a sentence in the text and ask for it, instead");
  list(command->add_option("--lengths", options->lengths, "Tokens of the haystacks")
           ->needs("--needle")
           ->check(in_range(std::int64_t{64}, std::int64_t{1} << 30))
           ->capture_default_str(),
       "N,N");
  list(command->add_option("--depths", options->depths, "Where the needle lies: 0 first, 1 last")
           ->needs("--needle")
           ->check(in_range(0.0, 1.0))
           ->capture_default_str(),
       "X,X");
  command->add_option("--seed", options->seed, "Of the systems' own, and of the needles")
      ->check(seed_range())
      ->type_name("N")
      ->capture_default_str();
  add_threads_option(*command, options->threads, "results do");
  command
      ->add_option("--out", options->out,
                   "New folder for the results (default: results/closed-loop or results/needle, "
                   "numbered when taken)")
      ->type_name("DIR");
  command->footer(
      "Examples:\n"
      "  kvreplay record --model smollm2-135m --text letters.txt --out letters.kvtrace.h5\n"
      "  kvreplay evaluate --model smollm2-135m --text story.txt --systems kvswap,quest,kivi_4 \\\n"
      "      --budgets 128,256,512 --bits 2,4 --adapter-trace letters.kvtrace.h5\n"
      "  kvreplay evaluate --model smollm2-135m --text story.txt --systems quest,clusterkv \\\n"
      "      --budgets 256 --needle --lengths 1024,2048 --depths 0,0.5,1");
  command->callback([options] { evaluate(*options); });
}

}  // namespace kvreplay
