#include "sim/replay/decided_logs.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "policies/decide/decide.hpp"
#include "sim/replay/stage_keys.hpp"

namespace kvreplay {

struct DecidedLogs::Held {
  std::mutex mutex;
  std::shared_ptr<const AccessLog> log;
  std::map<std::vector<KvShape>, OracleBounds> bounds;  ///< by the model's kinds
};

DecidedLogs::DecidedLogs(const StageContext& context, bool record_tokens)
    : context_(context), record_tokens_(record_tokens) {
  for (std::size_t i = 0; i < context.graph.decisions().size(); ++i) {
    held_.push_back(std::make_unique<Held>());
  }
}

DecidedLogs::~DecidedLogs() = default;

std::int64_t DecidedLogs::estimated_bytes(std::size_t decision) const {
  const DecisionNode& node = context_.graph.decisions()[decision];
  const TraceInfo& info = context_.traces[node.trace].reader.info();
  const std::int64_t tokens = info.prompt_tokens + node.steps;
  const std::int64_t rows = std::ssize(node.layers) * node.steps * info.query_heads;
  // A scattered group takes up to three bytes, and is in what the row picked and what the step
  // requested; consecutive ones take less than one each.
  const std::int64_t most =
      context_.experiment.systems[node.system].decide.selection.make({})->most_runs(tokens);
  const std::int64_t log_bytes = rows * std::min(3 * most, tokens) * (record_tokens_ ? 3 : 2);
  // Keys and values as they come back from storage, or keys as they are scored.
  const std::int64_t layer_bytes =
      info.kv_heads * tokens * info.head_dim * 2 * static_cast<std::int64_t>(sizeof(Half));
  return log_bytes + layer_bytes * context_.threads;
}

void DecidedLogs::decide(std::vector<std::size_t> decisions) {
  if (decisions.empty()) return;
  std::vector<std::string> keys;
  keys.reserve(decisions.size());
  for (const std::size_t i : decisions) keys.push_back(context_.graph.decisions()[i].key);
  const std::unique_ptr<StageStore::Lock> lock = context_.store.lock(keys);
  std::erase_if(decisions, [&](std::size_t i) {
    return context_.store.find(kind::kLog, context_.graph.decisions()[i].key).has_value();
  });
  decide_together(decisions);
}

void DecidedLogs::decide_together(std::span<const std::size_t> decisions) {
  if (decisions.empty()) return;
  const std::lock_guard guard(decide_mutex_);
  const DecisionNode& first = context_.graph.decisions()[decisions.front()];
  const ReplayTrace& trace = context_.traces[first.trace];
  std::vector<NamedDecideSpec> specs;
  double units = 0;
  for (const std::size_t i : decisions) {
    const SystemSpec& system = context_.experiment.systems[context_.graph.decisions()[i].system];
    specs.push_back({system.name, system.decide, context_.graph.decisions()[i].model_heads});
    units += context_.estimate.units(Stage::kDecide, i);
  }
  const auto layer_steps = static_cast<double>(std::ssize(first.layers) * first.steps);
  context_.begin_stage("decide", first.trace,
                       context_.estimate.nanoseconds(Stage::kDecide, units) / layer_steps);
  DecideOptions options;
  options.seed = first.seed;
  options.threads = context_.threads;
  options.max_steps = first.steps;
  options.layers = first.layers;
  options.record_tokens = record_tokens_;
  options.trace_hash = trace.sha256;
  options.progress = context_.progress;
  const Stopwatch watch;
  std::vector<AccessLog> logs = kvreplay::decide(trace.reader, specs, options);
  context_.estimate.add_measurement(Stage::kDecide, units, watch.nanoseconds() * context_.threads);
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    if (context_.check) {
      const DecisionNode& node = context_.graph.decisions()[decisions[i]];
      check_log_invariants(logs[i], context_.experiment.systems[node.system].decide);
    }
    context_.store.put_file(kind::kLog, context_.graph.decisions()[decisions[i]].key,
                            [&](const std::string& path) { write_access_log(logs[i], path); });
    held_[decisions[i]]->log = std::make_shared<const AccessLog>(std::move(logs[i]));
  }
}

std::shared_ptr<const AccessLog> DecidedLogs::get(std::size_t decision) {
  Held& held = *held_[decision];
  const std::lock_guard guard(held.mutex);
  if (held.log == nullptr) held.log = stored_log(decision);
  if (held.log == nullptr) decide_together(std::span(&decision, 1));
  return held.log;
}

std::shared_ptr<const AccessLog> DecidedLogs::stored_log(std::size_t decision) const {
  const std::optional<std::string> file =
      context_.store.find(kind::kLog, context_.graph.decisions()[decision].key);
  if (!file) return nullptr;
  try {
    return std::make_shared<const AccessLog>(read_access_log(*file));
  } catch (const UserError&) {
    return nullptr;  // another process has evicted it since
  }
}

OracleBounds& DecidedLogs::bounds(std::size_t decision, const std::vector<KvShape>& kinds) {
  Held& held = *held_[decision];
  const std::lock_guard guard(held.mutex);
  return held.bounds[kinds];
}

void DecidedLogs::release(std::size_t decision) {
  held_[decision]->log.reset();
  held_[decision]->bounds.clear();
}

}  // namespace kvreplay
