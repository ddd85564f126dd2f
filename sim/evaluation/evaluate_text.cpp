#include <nlohmann/json.hpp>
#include <numeric>

#include "base/build_info.hpp"
#include "base/progress.hpp"
#include "base/rank_correlation.hpp"
#include "policies/decide/layer_means.hpp"
#include "sim/evaluation/evaluation.hpp"
#include "sim/evaluation/evaluation_columns.hpp"
#include "sim/evaluation/own_trace.hpp"
#include "sim/models/closed_loop.hpp"
#include "sim/models/record.hpp"
#include "sim/replay/stage_keys.hpp"

namespace kvreplay {
namespace {

/// Means over the steps, query heads and all layers of the replayed recording.
struct OpenLoop {
  QualityMeans means;
  std::vector<LayerMeans> layers;
  std::int64_t coarse_channels = 0;
};

OpenLoop summarise(const AccessLog& log) {
  OpenLoop result;
  result.layers = layer_means(log);
  // Layers with full attention count: the closed loop runs through them, too.
  std::vector<LayerMeans> all = result.layers;
  for (LayerMeans& layer : all) {
    layer.full_attention = false;
    result.coarse_channels += layer.coarse_channels;
  }
  result.means = system_means(all);
  return result;
}

/// How similarly the two loops order the cells by a measure.
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
  std::vector<double> residual;
  std::vector<double> lost_mass;
  std::vector<double> lost_recall;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    kl.push_back(runs[i].mean_kl());
    perplexity.push_back(runs[i].perplexity());
    error.push_back(open[i].means.output_error);
    residual.push_back(open[i].means.residual_error);
    lost_mass.push_back(1 - open[i].means.attention_mass);
    lost_recall.push_back(1 - open[i].means.recall);
  }
  std::vector<RankRow> rows;
  for (const auto& [closed, a] : {std::pair{"kl_nats", &kl}, {"perplexity", &perplexity}}) {
    for (const auto& [opened, b] : {std::pair{"output_error", &error},
                                    {"residual_error", &residual},
                                    {"1-attention_mass", &lost_mass},
                                    {"1-recall", &lost_recall}}) {
      rows.push_back({closed, opened, spearman(*a, *b), kendall(*a, *b)});
    }
  }
  return rows;
}

}  // namespace

EvaluationResult evaluate_text(const EvaluationRequest& request, const Model& model,
                               const ModelText& text, std::span<const EvaluationCell> cells,
                               const std::string& folder) {
  check_text(model, text.ids, request.prompt, request.steps, request.prompt + request.steps);
  const std::vector<NamedDecideSpec> specs = specs_of(cells);
  const OwnTrace own(model, text,
                     {.folder = folder,
                      .adapter_trace = request.adapter_trace,
                      .prompt_tokens = request.prompt,
                      .steps = request.steps,
                      .threads = request.threads});
  ClosedLoopResult closed;
  {
    ClosedLoopOptions loop{.ids = text.ids,
                           .prompt_tokens = request.prompt,
                           .steps = request.steps,
                           .adapters = &own.adapters(),
                           .seed = request.seed,
                           .threads = request.threads};
    Progress progress("closed loop",
                      closed_loop_work(model.architecture(), std::ssize(cells), loop));
    loop.progress = &progress;
    closed = run_closed_loop(model, specs, loop);
  }
  std::vector<OpenLoop> open;
  {
    Progress progress("open loop", std::ssize(own.trace().info().recorded_layers) * request.steps);
    for (const AccessLog& log :
         decide(own.trace(), specs,
                {.seed = request.seed, .threads = request.threads, .progress = &progress})) {
      open.push_back(summarise(log));
    }
  }

  const std::vector<ClosedLoopRun>& runs = closed.systems;
  std::vector<EvaluationColumn> columns = cell_columns(cells);
  const auto add = [&](const char* name, int decimals, std::function<double(std::size_t)> value) {
    columns.push_back({name,
                       [value = std::move(value)](std::size_t i) { return number_field(value(i)); },
                       decimals, true});
  };
  add("attended_tokens", 1, [&](std::size_t i) { return runs[i].attended_tokens; });
  add("stored_bits", 2, [&](std::size_t i) { return runs[i].stored_bits; });
  add("perplexity", 4, [&](std::size_t i) { return runs[i].perplexity(); });
  add("full_perplexity", 4, [&](std::size_t) { return closed.full.perplexity(); });
  add("kl_nats", 5, [&](std::size_t i) { return runs[i].mean_kl(); });
  add("agreement", 4, [&](std::size_t i) { return runs[i].agreement(closed.full); });
  add("attention_mass", 4, [&](std::size_t i) { return open[i].means.attention_mass; });
  add("output_error", 4, [&](std::size_t i) { return open[i].means.output_error; });
  add("residual_error", 4, [&](std::size_t i) { return open[i].means.residual_error; });
  const auto worst = [&](std::size_t i) -> const LayerMeans& {
    return worst_layer(open[i].layers);
  };
  add("worst_layer", 0, [&](std::size_t i) { return static_cast<double>(worst(i).layer); });
  add("worst_layer_error", 4, [&](std::size_t i) { return worst(i).means.output_error; });
  add("coarse_channels", 0,
      [&](std::size_t i) { return static_cast<double>(open[i].coarse_channels); });
  add("recall", 4, [&](std::size_t i) { return open[i].means.recall; });

  std::string layers =
      "system,budget,budget_unit,layer,attention_mass,output_error,residual_error,coarse_"
      "channels\n";
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (const LayerMeans& layer : open[i].layers) {
      layers += cells[i].system + ',' + cells[i].budget + ',' + cells[i].unit + ',' +
                std::to_string(layer.layer) + ',' + number_field(layer.means.attention_mass) + ',' +
                number_field(layer.means.output_error) + ',' +
                number_field(layer.means.residual_error) + ',' +
                std::to_string(layer.coarse_channels) + '\n';
    }
  }
  std::string steps = "system,budget,budget_unit,step,log_probability,kl_nats,likeliest\n";
  const auto add_steps = [&](const ClosedLoopRun& run, const std::string& key) {
    for (std::size_t s = 0; s < run.likeliest.size(); ++s) {
      steps += key + ',' + std::to_string(s) + ',' +
               number_field(static_cast<double>(run.log_probability[s])) + ',' +
               number_field(static_cast<double>(run.kl_divergence[s])) + ',' +
               std::to_string(run.likeliest[s]) + '\n';
    }
  };
  add_steps(closed.full, "full,,");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    add_steps(runs[i], cells[i].system + ',' + cells[i].budget + ',' + cells[i].unit);
  }
  const std::vector<RankRow> ranks = compare_ranks(runs, open);
  const std::vector<EvaluationColumn> rank_columns{
      {"closed_loop", [&](std::size_t i) { return ranks[i].closed_loop; }, 0, false},
      {"open_loop", [&](std::size_t i) { return ranks[i].open_loop; }, 0, false},
      {"cells", [&](std::size_t) { return std::to_string(cells.size()); }, 0, true},
      {"spearman", [&](std::size_t i) { return number_field(ranks[i].spearman); }, 3, true},
      {"kendall", [&](std::size_t i) { return number_field(ranks[i].kendall); }, 3, true}};
  const std::string shown = table_text(columns, cells.size()) +
                            "\nRank correlation of the two loops; 1 is the same order:\n" +
                            table_text(rank_columns, ranks.size());
  return {{{"closed_loop.csv", csv_text(columns, cells.size())},
           {"steps.csv", steps},
           {"layers.csv", layers},
           {"ranks.csv", csv_text(rank_columns, ranks.size())},
           {"table.txt", shown}},
          shown};
}

std::string evaluation_manifest(const EvaluationRequest& request, const Model& model,
                                const ModelText& text, std::span<const EvaluationCell> cells) {
  nlohmann::ordered_json json;
  json["model"] = model.name();
  json["weights_sha256"] = model.source_sha256();
  json["text_source"] = text.source;
  json["text_sha256"] = text.sha256;
  json["prompt_tokens"] = request.prompt;
  json["steps"] = request.steps;
  json["seed"] = request.seed;
  json["adapter_trace"] =
      request.adapter_trace.empty() ? "" : TraceReader(request.adapter_trace).content_hash();
  for (const EvaluationCell& cell : cells) {
    json["systems"][cell.decide.name] = nlohmann::json::parse(cell.decide.spec.resolved());
  }
  json["kvreplay_version"] = version();
  json["sources_sha256"] = {{"decide", kDecideSources}};
  return json.dump(2) + '\n';
}

}  // namespace kvreplay
