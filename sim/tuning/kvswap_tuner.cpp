#include "sim/tuning/kvswap_tuner.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "base/size.hpp"
#include "base/table.hpp"
#include "sim/replay/results.hpp"
#include "sim/replay/stage_store.hpp"
#include "sim/replay/trace_hash.hpp"
#include "sim/tuning/goal.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr const char* kFormat = "kvreplay kvswap solutions 2";

/// 1, 2, 4 ... times `unit`, from `min` to below `max`, followed by `max`.
std::vector<std::int64_t> powers_up_to(std::int64_t min, std::int64_t max, std::int64_t unit) {
  std::vector<std::int64_t> powers;
  for (std::int64_t power = unit; power < max; power *= 2) {
    if (power >= min) powers.push_back(power);
  }
  powers.push_back(max);
  return powers;
}

Composition with_setting(const Composition& base, const KvSwapSetting& setting) {
  json object = json::parse(base);
  object["grouping"]["group_tokens"] = setting.group_tokens;
  object["scoring"]["sigma"] = setting.sigma;
  object["scoring"]["rank"] = 0;
  object["cache"]["capacity_groups"] = setting.capacity_groups;
  object["cache"]["capacity_bytes"] = 0;
  return object.dump();
}

/// The tuner knows the memory of these parts only.
void check_parts(const SystemSpec& system) {
  const json object = json::parse(system.resolved());
  const auto expect = [&](const std::string& role, bool met, const std::string& allowed) {
    if (met) return;
    throw UserError({system.name, role},
                    "found '" + object.at(role).at("part").get<std::string>() + "'",
                    allowed + ", because KVSwap's tuner is for systems composed like kvswap");
  };
  expect("grouping", system.decide.grouping.name() == "page", "page");
  expect("scoring", system.decide.scoring.name() == "low_rank", "low_rank");
  expect("selection", object["selection"].value("budget_tokens", 0) > 0,
         "a part with budget_tokens above 0");
  expect("precision", system.decide.precision.name() == "fp16", "fp16");
  expect("cache", object["cache"].contains("capacity_groups"), "a cache with capacity_groups");
}

std::int64_t rank_of(const KvSwapProblem& problem, const KvSwapSetting& setting) {
  return std::max<std::int64_t>(1, problem.width / setting.sigma);
}

ordered_json problem_json(const KvSwapProblem& problem) {
  return {{"budget_bytes", problem.budget_bytes},
          {"layers", problem.layers},
          {"width", problem.width},
          {"entry_bytes", problem.entry_bytes},
          {"selected_tokens", problem.selected_tokens},
          {"landing_buffers", problem.read_buffers},
          {"sigmas", problem.sigmas},
          {"group_sizes", problem.group_sizes},
          {"alpha", problem.alpha},
          {"initial_reuse_tokens", problem.min_reuse_tokens()},
          {"delta_tokens", problem.delta_tokens}};
}

ordered_json solution_json(const KvSwapProblem& problem, const KvSwapSolution& solution) {
  const KvSwapMeasured& measured = solution.measured;
  return {{"batch", solution.batch},
          {"context_tokens", solution.context_tokens},
          {"sigma", solution.setting.sigma},
          {"rank", rank_of(problem, solution.setting)},
          {"group_tokens", solution.setting.group_tokens},
          {"capacity_groups", solution.setting.capacity_groups},
          {"memory_bytes", solution.memory_bytes},
          {"latency_ms", measured.latency_ms},
          {"compute_ms", measured.compute_ms},
          {"io_ms", measured.io_ms},
          {"exposed_io_ms", measured.exposed_io_ms},
          {"hidden_share", measured.hidden_share()},
          {"hidden", solution.hidden},
          {"reuse_rate", measured.reuse_rate},
          {"attention_mass", measured.attention_mass},
          {"output_error", measured.output_error}};
}

/// The measurements: quality by sigma and G, and the reuse rate by sigma, G and C.
ordered_json tables_json(const KvSwapTuner::Measured& all) {
  ordered_json tables{{"quality", ordered_json::array()}, {"reuse", ordered_json::array()}};
  for (const auto& [key, measured] : all.quality) {
    tables["quality"].push_back({{"sigma", key.first},
                                 {"group_tokens", key.second},
                                 {"attention_mass", measured.attention_mass},
                                 {"output_error", measured.output_error}});
  }
  for (const auto& [setting, rate] : all.reuse_rate) {
    tables["reuse"].push_back({{"sigma", setting.sigma},
                               {"group_tokens", setting.group_tokens},
                               {"capacity_groups", setting.capacity_groups},
                               {"reuse_rate", rate}});
  }
  return tables;
}

std::vector<std::string> line_of(const KvSwapSolution& solution) {
  const KvSwapMeasured& measured = solution.measured;
  return {std::to_string(solution.batch),
          std::to_string(solution.context_tokens),
          std::to_string(solution.setting.group_tokens),
          std::to_string(solution.setting.sigma),
          std::to_string(solution.setting.capacity_groups),
          fixed_text(static_cast<double>(solution.memory_bytes) / 1048576, 1),
          fixed_text(measured.latency_ms, 2),
          fixed_text(measured.compute_ms, 2),
          fixed_text(measured.io_ms, 2),
          fixed_text(measured.hidden_share(), 3),
          fixed_text(measured.reuse_rate, 3),
          fixed_text(measured.attention_mass, 4) +
              (solution.hidden ? "" : "  (not hidden; the fastest one tried)")};
}

/// An integer of a solutions file.
std::int64_t whole(const ConfigNode& node, const std::string& name) {
  const Value value = node.at(name).argument().value;
  const auto* number = std::get_if<std::int64_t>(&value);
  if (number == nullptr || *number < 1) {
    throw UserError(node.at(name).place(), "found " + to_text(value), "an integer from 1");
  }
  return *number;
}

}  // namespace

KvSwapTuner::KvSwapTuner(const KvSwapRequest& request)
    : request_(request), batches_(powers_up_to(1, request.max_batch, 1)) {
  if (request.max_context == 0) {
    throw UserError({"--max-context", ""}, "found none", "tokens such as 16K");
  }
  find_contexts();
  load();
  state_problem();
}

void KvSwapTuner::find_contexts() {
  const Experiment plain = request_.experiment.load({"system=" + json(request_.system).dump()});
  const Cell& cell = plain.cells.front();
  const TraceReader trace(plain.traces[cell.trace]);
  std::int64_t recorded = trace.info().tokens;
  if (cell.steps > 0) {
    recorded = std::min(recorded, trace.info().prompt_tokens + cell.steps);
  }
  if (request_.max_context < recorded) {
    throw UserError({"--max-context", ""}, "found " + std::to_string(request_.max_context),
                    "at least the " + std::to_string(recorded) +
                        " tokens of the recording (`kvreplay cut` shortens a trace)");
  }
  contexts_ = powers_up_to(recorded, request_.max_context, 1024);
}

void KvSwapTuner::load() {
  experiment_ = request_.experiment.load({"system=" + json(request_.system).dump(),
                                          "batch=" + json(batches_).dump(),
                                          "model.context_tokens=" + json(contexts_).dump()});
  threads_ = experiment_.threads > 0 ? experiment_.threads : processor_count();
  experiment_.threads = 1;  // each (batch, context) runs in a thread of its own
  cells_ = experiment_.cells;
  if (cells_.size() != batches_.size() * contexts_.size()) {
    throw UserError({experiment_.name, ""},
                    "has several traces, models, platforms, devices or settings",
                    "one of each; choose by --set, such as --set device=ufs40");
  }
  const auto order = [&](const Cell& cell) { return std::pair(context_of(cell), cell.batch); };
  std::sort(cells_.begin(), cells_.end(),
            [&](const Cell& a, const Cell& b) { return order(a) < order(b); });
}

void KvSwapTuner::state_problem() {
  const SystemSpec& system = experiment_.systems.front();
  check_parts(system);
  base_ = composition_of(system);
  const ModelSpec& model = experiment_.models.front();
  if (model.kv_kinds().size() > 1 || model.attention_layers() < model.layers) {
    throw UserError(model.arguments.place("layers"), "found layers of several kinds",
                    "a model whose layers are alike: the solver gives all the same memory");
  }
  problem_.layers = model.layers;
  problem_.width = model.kv_heads * model.head_dim;
  problem_.entry_bytes = 4 * problem_.width;
  problem_.selected_tokens = json::parse(base_).at("selection").at("budget_tokens");
  problem_.read_buffers = system.pipeline.make({})->read_buffers();
  problem_.budget_bytes = request_.budget_mib << 20;
  problem_.alpha = request_.alpha;
  problem_.initial_reuse_tokens = request_.initial_reuse_tokens;
  problem_.delta_tokens = request_.delta_tokens;
  problem_.group_sizes = powers_up_to(1, request_.max_group_tokens, 1);
  // The trace's adapters determine the available sigmas.
  const TraceReader trace(experiment_.traces.front());
  const SearchSpace space(trace, {});
  std::string refusal;
  for (const std::int64_t sigma : powers_up_to(1, request_.max_sigma, 1)) {
    try {
      static_cast<void>(space.checked(with_setting(base_, {sigma, 1, 1})));
      problem_.sigmas.push_back(sigma);
    } catch (const UserError& error) {
      refusal = error.what();
    }
  }
  if (problem_.sigmas.empty()) throw UserError(refusal);
}

std::int64_t KvSwapTuner::context_of(const Cell& cell) const {
  return experiment_.models[cell.model].context_tokens;
}

KvSwapTuner::Solved KvSwapTuner::solve(StageStore& store, Progress* progress) const {
  Solved solved;
  for (const Cell& cell : cells_) solved.solutions.push_back({cell.batch, context_of(cell), {}});
  std::vector<Measured> measured(cells_.size());
  parallel_for(work(), threads_, [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    const Evaluator evaluator(experiment_, cells_[at], store);
    Solution& solution = solved.solutions[at];
    solution.found = solve_kvswap(problem_, solution.batch, solution.context_tokens,
                                  [&](const KvSwapSetting& setting, std::int64_t, std::int64_t) {
                                    return measure(evaluator, setting, measured[at]);
                                  });
    if (progress != nullptr) progress->advance();
  });
  // In the order of the cells, so that the result does not depend on the number of threads.
  for (const Measured& of_cell : measured) {
    for (const auto& [key, value] : of_cell.quality) solved.measured.quality[key] = value;
    for (const auto& [key, value] : of_cell.reuse_rate) solved.measured.reuse_rate[key] = value;
    solved.measured.synthetic |= of_cell.synthetic;
    if (solved.measured.stretched.empty()) solved.measured.stretched = of_cell.stretched;
  }
  const bool none = std::none_of(solved.solutions.begin(), solved.solutions.end(),
                                 [](const Solution& solution) { return solution.found; });
  if (none) {
    throw UserError({"--budget-mib", ""}, "found " + std::to_string(request_.budget_mib),
                    "more: not even the smallest context fits at sigma " +
                        std::to_string(problem_.sigmas.back()));
  }
  solved.trace_sha256 = trace_hash(experiment_.traces.front(), store);
  return solved;
}

KvSwapMeasured KvSwapTuner::measure(const Evaluator& evaluator, const KvSwapSetting& setting,
                                    Measured& all) const {
  const SystemSpec system = system_of(with_setting(base_, setting), name());
  std::map<std::string, std::string> refused;
  const std::optional<CellResult> cell =
      evaluator.evaluate(std::span(&system, 1), &refused).front();
  if (!cell) {
    throw UserError({system.name, ""},
                    "a replay refuses sigma " + std::to_string(setting.sigma) + " (" +
                        refused.begin()->second + ")",
                    "a system that `kvreplay run` accepts");
  }
  KvSwapMeasured measured;
  measured.latency_ms = metric(*cell, "latency_ms");
  measured.compute_ms = metric(*cell, "compute_ms");
  measured.exposed_io_ms = metric(*cell, "exposed_io_ms");
  measured.io_ms = measured.exposed_io_ms + metric(*cell, "hidden_io_ms");
  measured.reuse_rate = metric(*cell, "hit_rate");
  measured.attention_mass = recorded_quality(*cell, "attention_mass");
  measured.output_error = recorded_quality(*cell, "output_error");
  if (all.stretched.empty()) all.stretched = stretched_text(*cell);
  all.quality[{setting.sigma, setting.group_tokens}] = measured;
  all.reuse_rate[setting] = measured.reuse_rate;
  all.synthetic = cell->synthetic;
  return measured;
}

std::string KvSwapTuner::table(const Solved& solved) {
  constexpr auto kLeft = Table::Align::kLeft;
  Table table({{"batch", kLeft, 5},
               {"context", kLeft, 7},
               {"G", kLeft, 2},
               {"sigma", kLeft, 5},
               {"C", kLeft, 5},
               {"memory_mib", kLeft, 10},
               {"latency_ms", kLeft, 10},
               {"compute_ms", kLeft, 10},
               {"io_ms", kLeft, 6},
               {"hidden_io", kLeft, 9},
               {"reuse", kLeft, 5},
               {"attention_mass", kLeft}});
  for (const Solution& solution : solved.solutions) {
    if (solution.found) {
      table.add_row(line_of(*solution.found));
    } else {
      table.add_row({std::to_string(solution.batch), std::to_string(solution.context_tokens),
                     "does not fit into the budget, even at the largest sigma"});
    }
  }
  return table.text();
}

std::vector<ResultFile> KvSwapTuner::files(const Solved& solved, const std::string& command) const {
  const SystemSpec& system = experiment_.systems.front();
  const std::string trace = trace_name(experiment_.traces.front());
  ordered_json file{
      {"format", kFormat},
      {"system", ordered_json::parse(system_file(base_, system.title, system.source))}};
  file["made_for"] = {{"model", experiment_.models.front().name},
                      {"platform", experiment_.platforms.front().name},
                      {"device", experiment_.devices.front().name},
                      {"trace", trace},
                      {"trace_sha256", solved.trace_sha256},
                      {"synthetic", solved.measured.synthetic}};
  file["problem"] = problem_json(problem_);
  file["solutions"] = ordered_json::array();
  file["without_solution"] = ordered_json::array();
  for (const Solution& solution : solved.solutions) {
    if (solution.found) {
      file["solutions"].push_back(solution_json(problem_, *solution.found));
    } else {
      file["without_solution"].push_back(
          {{"batch", solution.batch}, {"context_tokens", solution.context_tokens}});
    }
  }
  file["tables"] = tables_json(solved.measured);

  ReplayResult result;
  result.traces.push_back({trace, solved.trace_sha256, solved.measured.synthetic});
  ordered_json manifest = ordered_json::parse(manifest_json(experiment_, result));
  manifest["command"] = command;
  manifest["tune"] = {{"problem", file["problem"]},
                      {"max_group_tokens", request_.max_group_tokens},
                      {"max_sigma", request_.max_sigma},
                      {"max_context", request_.max_context},
                      {"max_batch", request_.max_batch}};
  return {{"solutions.json", file.dump(2) + '\n'},
          {"table.txt", table(solved)},
          {"manifest.json", manifest.dump(2) + '\n'}};
}

LookedUpSolution look_up_solution(const std::string& file, std::int64_t batch,
                                  std::int64_t context_tokens) {
  const ConfigNode node = ConfigNode::load(file);
  if (node.at("format").text() != kFormat) {
    throw UserError(node.at("format").place(), "found " + node.at("format").text(), kFormat);
  }
  std::vector<KvSwapSolution> solutions;
  for (const ConfigNode& one : node.at("solutions").items()) {
    KvSwapSolution& solution = solutions.emplace_back();
    solution.batch = whole(one, "batch");
    solution.context_tokens = whole(one, "context_tokens");
    solution.setting = {whole(one, "sigma"), whole(one, "group_tokens"),
                        whole(one, "capacity_groups")};
  }
  if (solutions.empty())
    throw UserError(node.at("solutions").place(), "found none", "at least one");
  const ConfigNode stated = node.at("problem");
  KvSwapProblem problem;
  problem.budget_bytes = whole(stated, "budget_bytes");
  problem.layers = whole(stated, "layers");
  problem.width = whole(stated, "width");
  problem.entry_bytes = whole(stated, "entry_bytes");
  problem.selected_tokens = whole(stated, "selected_tokens");
  problem.read_buffers = whole(stated, "landing_buffers");
  const KvSwapSolution* found = nearest_solution(problem, solutions, batch, context_tokens);
  if (found == nullptr) {
    std::int64_t longest = 0;
    for (const KvSwapSolution& solution : solutions) {
      longest = std::max(longest, longest_context(problem, solution.setting));
    }
    throw UserError({"--context", ""}, "found " + std::to_string(context_tokens),
                    "up to " + std::to_string(longest) + ": no solution of " + file +
                        " fits its budget of " + size_text(problem.budget_bytes) +
                        " at a longer one");
  }
  const SystemSpec base = SystemSpec::parse(node.at("system"), "solution");
  return {system_file(with_setting(composition_of(base), found->setting),
                      base.title + " (solution for batch " + std::to_string(found->batch) +
                          ", context " + std::to_string(found->context_tokens) + ")",
                      base.source),
          found->batch, found->context_tokens};
}

}  // namespace kvreplay
