#include "sim/live/live_run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/config.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "devices/real/host.hpp"
#include "policies/decide/layer_ratios.hpp"
#include "policies/decide/stream_policy.hpp"
#include "sim/live/live_layer.hpp"
#include "sim/live/live_machine.hpp"
#include "sim/models/full_attention.hpp"
#include "sim/models/half_rows.hpp"
#include "sim/models/layer_shape.hpp"
#include "sim/models/record.hpp"
#include "sim/models/trace_rows.hpp"
#include "sim/models/transformer.hpp"
#include "sim/time/pipeline/pipeline.hpp"

namespace kvreplay {
namespace {

constexpr std::uint64_t kRegionAlignment = 1 << 20;

bool all_in_memory(const SystemSpec& system) {
  return system.place.cache.make({})->holds_everything();
}

/// A layer of which nothing is on the target: full attention, or a cache that holds everything.
class MemoryLayer {
 public:
  MemoryLayer(const DecideSpec& spec, const LayerShape& shape, const PolicyOptions& options)
      : policy_(spec, shape, options),
        keys_(shape.kv_heads, shape.max_tokens, shape.head_dim),
        values_(shape.kv_heads, shape.max_tokens, shape.head_dim),
        next_(shape.prompt_tokens),
        decoded_apart_(spec.precision.name() != "fp16") {}

  void add_prompt(const Entries& entries, const QueryWindow& window) {
    const std::int64_t elements = entries.keys.tokens * entries.keys.dim;
    for (std::int64_t head = 0; head < entries.keys.heads; ++head) {
      std::copy_n(entries.keys.head(head), elements, keys_.row(head, 0));
      std::copy_n(entries.values.head(head), elements, values_.row(head, 0));
    }
    policy_.add_prompt(entries, window);
  }
  void attend(const float* key, const float* value, QueryRows queries, QueryRows ahead,
              float* outputs) {
    keys_.put(next_, key);
    values_.put(next_, value);
    ++next_;
    for (const HeadAttention& head : policy_.attend(entries(), queries, ahead)) {
      outputs = std::copy(head.output.begin(), head.output.end(), outputs);
    }
  }
  void add_token() { policy_.add_token(entries()); }

  [[nodiscard]] LayerPolicy& policy() { return policy_; }
  /// Of the entries as they were made, and again as they decode where that differs.
  [[nodiscard]] std::int64_t bytes() const {
    return (decoded_apart_ ? 2 : 1) * (keys_.bytes() + values_.bytes());
  }

 private:
  [[nodiscard]] Entries entries() const { return {keys_.first(next_), values_.first(next_)}; }

  LayerPolicy policy_;
  HalfRows keys_;
  HalfRows values_;
  std::int64_t next_;
  bool decoded_apart_;
};

/// The model, and its sequence under one system.
class LiveSequence final : public LiveWork {
 public:
  LiveSequence(const Model& model, const SystemSpec& system, const BlockTarget* target,
               const LiveIo::Options& io, const LiveOptions& options)
      : model_(model),
        architecture_(model.architecture()),
        system_(system),
        options_(options),
        pool_(options.threads),
        transformer_(model, options.prompt_tokens + options.steps, pool_),
        memory_(architecture_.layers * architecture_.kv_heads,
                options.prompt_tokens + options.steps),
        statistics_(options.prompt_tokens + options.steps),
        ids_(options.text.ids) {
    if (target != nullptr) io_.emplace(*target, io);
    const std::int64_t tokens = options.prompt_tokens + options.steps;
    ids_.resize(static_cast<std::size_t>(options.sampling ? options.prompt_tokens : tokens));
    if (options.sampling) sampler_.emplace(*options.sampling);
    make_layers(target);
    if (!options.record.empty()) start_recording();
  }

  LiveResult run() &&;

  [[nodiscard]] std::size_t layers() const override {
    return static_cast<std::size_t>(architecture_.layers);
  }
  void compute(Kernels kernels, std::size_t layer) override;
  void start(TransferKind kind, std::size_t layer, LiveIo::Batch& batch) override {
    if (!on_target_[layer]) return;
    LapTimer timer;
    on_target_[layer]->start(kind, *io_, batch);
    timer.add_to(start_ns_);
  }
  bool go_on(TransferKind kind, std::size_t layer, LiveIo::Batch& batch) override {
    return on_target_[layer] && on_target_[layer]->go_on(kind, *io_, batch);
  }

 private:
  class Prefill;

  void make_layers(const BlockTarget* target);
  void start_recording();
  void prefill(LiveResult& result);
  void step(LiveMachine& machine, const Pipeline& pipeline, LiveResult& result);
  void score(std::size_t layer);
  void attend(std::size_t layer);
  [[nodiscard]] LayerPolicy& policy(std::size_t layer) {
    return on_target_[layer] ? on_target_[layer]->policy() : in_memory_[layer]->policy();
  }
  /// Queries as they are used: as a trace holds them where one is written.
  [[nodiscard]] QueryRows used(const float* queries, std::vector<float>& rounded) const;
  void finish(LiveResult& result);
  [[nodiscard]] bool stopped() const { return options_.stop != nullptr && *options_.stop; }

  const Model& model_;
  const Architecture& architecture_;
  const SystemSpec& system_;
  const LiveOptions& options_;
  WorkerPool pool_;
  Transformer transformer_;
  std::optional<LiveIo> io_;
  LiveMachine* machine_ = nullptr;
  std::optional<DecodedRows> rows_;  // where a layer has entries on the target
  EntryMemory memory_;
  std::vector<std::unique_ptr<LiveLayer>> on_target_;    // by layer, or null
  std::vector<std::unique_ptr<MemoryLayer>> in_memory_;  // by layer, or null
  TokenStatistics statistics_;
  std::vector<std::int32_t> ids_;
  std::optional<Sampler> sampler_;
  std::span<const float> logits_;
  std::int64_t position_ = 0;
  LiveWorkTimes work_;           // by the thread that computes
  std::int64_t start_ns_ = 0;    // by the thread that runs the steps
  std::int64_t projected_ = -1;  // the latest layer whose queries are known
  std::vector<float> rounded_;
  std::vector<float> rounded_ahead_;

  TraceInfo info_;
  std::unique_ptr<TraceWriter> writer_;
  std::unique_ptr<TraceRows> trace_;
  /// The look-ahead queries of each layer at this step, for the trace.
  std::vector<std::vector<float>> ahead_of_layer_;
};

void LiveSequence::make_layers(const BlockTarget* target) {
  const bool in_memory = all_in_memory(system_);
  std::uint64_t region = 0;
  std::uint64_t index_bytes = 0;
  const std::int64_t dense =
      in_memory ? architecture_.layers : system_.decide.full_attention_layers();
  const bool index_on_flash = system_.pipeline.make({})->index_on_flash();
  const auto shape_of = [&](std::int64_t layer) {
    return layer_shape(architecture_, layer, options_.prompt_tokens,
                       options_.prompt_tokens + options_.steps);
  };
  check_live_system(model_, system_, options_.prompt_tokens,
                    options_.prompt_tokens + options_.steps);
  if (!in_memory && dense < architecture_.layers) {
    if (target == nullptr) throw std::logic_error("a system on flash without a target");
    const auto shares = static_cast<std::uint64_t>(architecture_.layers - dense);
    region = target->size_bytes() / shares / kRegionAlignment * kRegionAlignment;
    if (region == 0) {
      throw UserError({target->path(), ""},
                      "too small: " + std::to_string(target->size_bytes()) + " bytes",
                      std::to_string(shares * kRegionAlignment) + " bytes or more");
    }
    if (index_on_flash) index_bytes = region / 8 / 4096 * 4096;
    rows_.emplace(architecture_.kv_heads, options_.prompt_tokens + options_.steps,
                  architecture_.head_dim);
  }
  std::uint64_t offset = 0;
  for (std::int64_t i = 0; i < architecture_.layers; ++i) {
    const LayerShape shape = shape_of(i);
    const PolicyOptions policy{.adapters = options_.adapters, .seed = options_.seed};
    on_target_.emplace_back();
    in_memory_.emplace_back();
    if (i < dense) {
      in_memory_.back() = std::make_unique<MemoryLayer>(system_.decide, shape, policy);
      continue;
    }
    const LiveLayer::Options layer{.prompt_tokens = options_.prompt_tokens,
                                   .max_tokens = options_.prompt_tokens + options_.steps,
                                   .region = {offset, region - index_bytes},
                                   .index_region = {offset + region - index_bytes, index_bytes},
                                   .limits = io_->limits(),
                                   .check = options_.check,
                                   .keep_extents = options_.check,
                                   .target = target->path()};
    on_target_.back() = std::make_unique<LiveLayer>(
        system_.decide, system_.place, shape, policy, layer, *rows_, memory_,
        [this](std::span<const IoCommand> commands, LiveIo::Reader& reader) {
          machine_->read_now(commands, reader);
        });
    offset += region;
  }
}

void LiveSequence::start_recording() {
  const bool ahead = policy(0).looks_ahead();
  const RecordOptions record{
      .ids = ids_,
      .prompt_tokens = options_.prompt_tokens,
      .steps = options_.steps,
      .sampling = options_.sampling,
      .query_window = std::min(options_.query_window, options_.prompt_tokens),
      .queries_ahead = ahead,
      .text_source = options_.text.source,
      .text_sha256 = options_.text.sha256,
      .created_utc = options_.created_utc};
  info_ = trace_info(model_, record);
  info_.tool = "kvreplay live";
  const TraceWriter::Queries queries{
      .start = info_.prompt_tokens - record.query_window, .ahead = ahead, .attention_input = false};
  writer_ = std::make_unique<TraceWriter>(options_.record, info_, queries);
  trace_ = std::make_unique<TraceRows>(architecture_, info_, queries, pool_, *writer_);
  if (ahead) ahead_of_layer_.resize(layers());
}

/// Full attention over the prompt, layer after layer; each layer's entries go where its policy says
/// before the next one runs.
class LiveSequence::Prefill final : public Attention {
 public:
  explicit Prefill(LiveSequence& sequence) : sequence_(sequence) {}

  void attend(const LayerBatch& batch, float* outputs) override {
    const LiveSequence& s = sequence_;
    const Architecture& a = s.architecture_;
    if (s.stopped()) throw UserError({"live", ""}, "interrupted while the prompt was read", "");
    const std::int64_t prompt = s.options_.prompt_tokens;
    const std::int64_t window = std::min(s.options_.query_window, prompt);
    HalfRows keys(a.kv_heads, prompt, a.head_dim);
    HalfRows values(a.kv_heads, prompt, a.head_dim);
    HalfRows queries(a.query_heads, window, a.head_dim);
    for (std::int64_t r = 0; r < prompt; ++r) {
      keys.put(r, batch.keys + r * a.kv_size());
      values.put(r, batch.values + r * a.kv_size());
      if (const std::int64_t row = r - (prompt - window); row >= 0) {
        queries.put(row, batch.queries + r * a.query_size());
      }
    }
    if (s.trace_) keep(batch, prompt - window);
    {
      const auto at = static_cast<std::size_t>(batch.layer);
      Architecture one = a;
      one.layers = 1;
      one.sliding_window = {a.sliding_window[at]};
      FullAttention full(one, prompt, sequence_.pool_);
      LayerBatch alone = batch;
      alone.layer = 0;
      full.attend(alone, outputs);
    }
    add(static_cast<std::size_t>(batch.layer), {keys.first(prompt), values.first(prompt)},
        {queries.first(window), prompt - window});
  }
  [[nodiscard]] bool wants_queries_ahead() const override {
    return !sequence_.ahead_of_layer_.empty();
  }
  void take_residual_norms(std::int64_t layer, std::span<const float> norms) override {
    const LiveOptions& options = sequence_.options_;
    const std::int64_t window = std::min(options.query_window, options.prompt_tokens);
    sequence_.trace_->keep_residual_norms(layer, norms.last(static_cast<std::size_t>(window)));
  }
  [[nodiscard]] bool wants_residual_norms() const override { return sequence_.trace_ != nullptr; }

 private:
  void add(std::size_t layer, const Entries& entries, const QueryWindow& window) {
    LiveSequence& s = sequence_;
    if (s.in_memory_[layer]) {
      s.in_memory_[layer]->add_prompt(entries, window);
      return;
    }
    LiveLayer& here = *s.on_target_[layer];
    if (before_ != nullptr) {  // memory holds one layer's image
      s.io_->wait(before_->prompt_batch());
      before_->end_prompt();
    }
    here.add_prompt(entries, window, *s.io_);
    before_ = &here;
  }
  /// The trace takes rows without queries, then those with.
  void keep(const LayerBatch& batch, std::int64_t start) {
    const Architecture& a = sequence_.architecture_;
    for (const auto& [begin, end] :
         {std::pair{std::int64_t{0}, start}, std::pair{start, sequence_.options_.prompt_tokens}}) {
      if (begin == end) continue;
      LayerBatch part = batch;
      part.rows = end - begin;
      part.positions = batch.positions.subspan(static_cast<std::size_t>(begin),
                                               static_cast<std::size_t>(part.rows));
      part.queries += begin * a.query_size();
      part.keys += begin * a.kv_size();
      part.values += begin * a.kv_size();
      if (part.queries_ahead != nullptr) part.queries_ahead += begin * a.query_size();
      sequence_.trace_->begin(begin);
      sequence_.trace_->keep(part);
    }
    sequence_.trace_->write(true);
  }

  LiveSequence& sequence_;
  LiveLayer* before_ = nullptr;
};

void LiveSequence::prefill(LiveResult& result) {
  const std::int64_t begin = monotonic_ns();
  const std::int64_t prompt = options_.prompt_tokens;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(prompt));
  std::iota(positions.begin(), positions.end(), 0);
  Prefill attention(*this);
  const std::span<const float> hidden = transformer_.run(
      std::span(ids_).first(static_cast<std::size_t>(prompt)), positions, attention);
  const std::int64_t first = trace_ ? 0 : prompt - 1;  // a trace has every token's statistics
  const std::span<const std::int32_t> next =
      std::span(ids_).subspan(static_cast<std::size_t>(first) + 1);
  logits_ =
      statistics_.add(transformer_, first,
                      hidden.subspan(static_cast<std::size_t>(first * architecture_.hidden_size)),
                      next.first(std::min(next.size(), static_cast<std::size_t>(prompt - first))));
  result.first_token_s = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  for (const auto& layer : on_target_) {
    if (!layer) continue;
    io_->wait(layer->prompt_batch());
    layer->end_prompt();
  }
  result.prompt_s = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  transformer_.free_rows();
  give_back_free_memory();
}

QueryRows LiveSequence::used(const float* queries, std::vector<float>& rounded) const {
  const auto size = static_cast<std::size_t>(architecture_.query_size());
  if (!trace_) return {queries, size};
  std::vector<Half> halves(size);
  rounded.resize(size);
  kernels::to_half(queries, halves.data(), architecture_.query_size());
  kernels::to_float(halves.data(), rounded.data(), architecture_.query_size());
  return rounded;
}

void LiveSequence::compute(Kernels kernels, std::size_t layer) {
  const auto index = static_cast<std::int64_t>(layer);
  LapTimer timer;
  if (kernels == Kernels::kHead) {
    const std::span<const float> hidden = transformer_.finish();
    const std::span<const std::int32_t> next =
        std::span(ids_).subspan(static_cast<std::size_t>(position_) + 1);
    logits_ = statistics_.add(transformer_, position_, hidden,
                              next.first(std::min<std::size_t>(next.size(), 1)));
    timer.add_to(work_.head_ns);
    return;
  }
  unsigned parts = 0;
  if (contains(kernels, Kernels::kProjectQuery)) parts |= Transformer::kQueries;
  if (contains(kernels, Kernels::kProjectKeyValue)) parts |= Transformer::kKeyValues;
  if (parts != 0) transformer_.project(index, parts);
  if ((parts & Transformer::kQueries) != 0) projected_ = index;
  timer.add_to(work_.project_ns);
  if (contains(kernels, Kernels::kScore)) score(layer);
  if (contains(kernels, Kernels::kAttend)) attend(layer);
}

void LiveSequence::score(std::size_t layer) {
  if (!on_target_[layer]) return;
  LiveLayer& here = *on_target_[layer];
  const auto index = static_cast<std::int64_t>(layer);
  const auto size = static_cast<std::size_t>(architecture_.query_size());
  if (here.policy().looks_ahead()) {
    LapTimer timer;
    transformer_.project(index, Transformer::kQueriesAhead);
    timer.add_to(work_.project_ns);
    const float* ahead = transformer_.batch(index).queries_ahead;
    if (!ahead_of_layer_.empty()) ahead_of_layer_[layer].assign(ahead, ahead + size);
    here.select(used(ahead, rounded_ahead_));
  } else if (projected_ == index) {
    here.select(used(transformer_.batch(index).queries, rounded_));
  } else {
    // Before the query is known, only what needs none is selected (SystemSpec::parse).
    rounded_.assign(size, 0.0F);
    here.select(rounded_);
  }
}

void LiveSequence::attend(std::size_t layer) {
  const auto index = static_cast<std::int64_t>(layer);
  LapTimer timer;
  LayerBatch batch = transformer_.batch(index);
  float* outputs = transformer_.attended().data();
  const auto size = static_cast<std::size_t>(architecture_.query_size());
  if (in_memory_[layer]) {
    MemoryLayer& here = *in_memory_[layer];
    QueryRows ahead;
    if (here.policy().looks_ahead()) {
      transformer_.project(index, Transformer::kQueriesAhead);
      batch = transformer_.batch(index);
      if (!ahead_of_layer_.empty()) {
        ahead_of_layer_[layer].assign(batch.queries_ahead, batch.queries_ahead + size);
      }
      ahead = used(batch.queries_ahead, rounded_ahead_);
    }
    here.attend(batch.keys, batch.values, used(batch.queries, rounded_), ahead, outputs);
  } else {
    on_target_[layer]->attend(batch.keys, batch.values, used(batch.queries, rounded_), outputs);
  }
  if (trace_) {
    if (!ahead_of_layer_.empty()) batch.queries_ahead = ahead_of_layer_[layer].data();
    trace_->keep(batch);
  }
  std::int64_t of_layer_ns = 0;  // a LiveLayer counts its own
  timer.add_to(in_memory_[layer] ? work_.in_memory_ns : of_layer_ns);
  transformer_.finish_layer();
  timer.add_to(work_.layer_ns);
  if (trace_) trace_->keep_residual_norms(index, transformer_.residual_norms());
  if (in_memory_[layer]) {
    in_memory_[layer]->add_token();
    timer.add_to(work_.in_memory_ns);
  } else {
    on_target_[layer]->add_token();
  }
}

void LiveSequence::step(LiveMachine& machine, const Pipeline& pipeline, LiveResult& result) {
  const std::int64_t begin = monotonic_ns();
  const std::int64_t exposed = machine.exposed_ns();
  const std::int64_t busy = io_ ? io_->busy_ns(begin) : 0;
  const LiveIo::Counters before = io_ ? io_->counters() : LiveIo::Counters{};
  projected_ = -1;
  const std::int32_t id = ids_[static_cast<std::size_t>(position_)];
  transformer_.begin({&id, 1}, {&position_, 1});
  machine.run(pipeline.step(machine));
  const std::int64_t end = monotonic_ns();
  const LiveIo::Counters after = io_ ? io_->counters() : LiveIo::Counters{};
  StepTiming& timing = result.steps.emplace_back();
  timing.latency_ns = end - begin;
  timing.exposed_io_ns = std::min(machine.exposed_ns() - exposed, timing.latency_ns);
  timing.compute_ns = timing.latency_ns - timing.exposed_io_ns;
  timing.busy_io_ns = io_ ? io_->busy_ns(end) - busy : 0;
  timing.read_bytes = after.read_bytes - before.read_bytes;
  timing.read_requests = after.read_requests - before.read_requests;
  timing.write_bytes = after.write_bytes - before.write_bytes;
  timing.write_requests = after.write_requests - before.write_requests;
  result.likeliest.push_back(likeliest(logits_));
  if (trace_) trace_->write(false);
}

LiveResult LiveSequence::run() && {
  LiveResult result;
  give_back_free_memory();
  prefill(result);
  if (trace_) trace_->begin(options_.prompt_tokens);
  const std::unique_ptr<Pipeline> pipeline = system_.pipeline.make({});
  {
    LiveMachine machine(*this, io_ ? &*io_ : nullptr, options_.threads < processor_count());
    machine_ = &machine;
    const ProcessorTime before = processor_time();
    for (std::int64_t step_number = 0; step_number < options_.steps && !stopped(); ++step_number) {
      position_ = options_.prompt_tokens + step_number;
      if (sampler_) {
        ids_.push_back(sampler_->draw(logits_));
        statistics_.follow(position_ - 1, logits_, ids_.back());
      }
      if (options_.on_token) options_.on_token(ids_[static_cast<std::size_t>(position_)]);
      step(machine, *pipeline, result);
    }
    machine.drain();
    work_.hand_over_ns = machine.hand_over_ns();
    result.stolen_share = stolen_share(before, processor_time());
  }
  result.memory.process_in_steps_bytes = own_memory_bytes();
  result.memory.process_peak_bytes = peak_memory_bytes();
  finish(result);
  return result;
}

void LiveSequence::finish(LiveResult& result) {
  const auto steps = std::ssize(result.steps);
  result.interrupted = steps < options_.steps;
  result.ids = ids_;
  result.ids.resize(static_cast<std::size_t>(options_.prompt_tokens + steps));
  if (steps > 0) {
    const auto first = statistics_.log_probability.begin() + options_.prompt_tokens;
    result.log_probability.assign(first, first + steps);
    result.log_probability.back() = 0;
  }
  result.work = work_;
  result.work.start_ns = start_ns_;
  result.memory.entries_bytes = memory_.peak_bytes();
  if (rows_) {
    result.memory.decoded_bytes = rows_->keys.bytes() + rows_->values.bytes();
    result.memory.io_bytes = io_->memory_bytes();
  }
  AccessLog& log = result.log;
  log.system = system_.name;
  log.decide_config = system_.decide.resolved();
  log.full_attention_layers = system_.decide.full_attention_layers();
  log.query_heads = architecture_.query_heads;
  log.kv_heads = architecture_.kv_heads;
  log.head_dim = architecture_.head_dim;
  log.prompt_tokens = options_.prompt_tokens;
  log.steps = steps;
  log.formats = policy(layers() - 1).formats();
  for (std::size_t i = 0; i < layers(); ++i) {
    if (on_target_[i]) {
      result.memory.entries_bytes += on_target_[i]->held_bytes();
      result.work.layers += on_target_[i]->work();
      result.checked_entries += on_target_[i]->checked_entries();
      result.base_reads += on_target_[i]->base_reads();
    } else {
      result.memory.in_memory_layers_bytes += in_memory_[i]->bytes();
    }
    log.layers.push_back(std::move(policy(i)).finish());
  }
  if (steps == 0) return;
  result.plan = place(log, system_.place, model_spec_of(model_).kv_shape());
  for (std::size_t i = 0; i < layers() && options_.check && !result.interrupted; ++i) {
    if (!on_target_[i]) continue;
    const LayerPlan::Io& planned = result.plan.layers[i].io;
    const LayerPlan::Io& done = on_target_[i]->extents();
    if (planned.reads != done.reads || planned.read_begin != done.read_begin ||
        planned.writes != done.writes || planned.write_begin != done.write_begin) {
      throw std::logic_error("layer " + std::to_string(i) +
                             " read or wrote other extents than stage 2 plans");
    }
    result.checked_extents += std::ssize(done.reads) + std::ssize(done.writes);
  }
  if (!trace_ || result.interrupted) return;
  trace_->write(true);
  trace_->write_output_weights(model_);
  statistics_.log_probability.back() = 0;
  writer_->write_tokens(ids_, statistics_.entropy, statistics_.top_probability,
                        statistics_.log_probability);
  writer_->finish();
}

}  // namespace

SystemSpec as_live_runs_it(SystemSpec system) {
  const std::span<const Parameter> parameters = DecideSpec::stream_parameters();
  for (const Parameter& parameter : parameters) {
    if (parameter.name == "index" && !all_in_memory(system)) {
      system.decide.stream.set(parameter, {std::string("stored"), "", false});
    }
  }
  return system;
}

std::uint64_t live_target_bytes(const Model& model, const SystemSpec& system, std::int64_t tokens,
                                const DeviceLimits& limits) {
  if (all_in_memory(system)) return 0;
  const Architecture& a = model.architecture();
  // Two bytes an element is the most that live stores; layouts leave room and grow.
  const std::int64_t entries = tokens * a.kv_size() * 2 * 2;
  const auto layer = static_cast<std::uint64_t>(3 * entries) + 4 * kRegionAlignment;
  return static_cast<std::uint64_t>(a.layers) *
         ((layer + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment) /
         limits.logical_block_bytes * limits.logical_block_bytes;
}

std::uint64_t least_live_target_bytes(const Model& model, const SystemSpec& system,
                                      std::int64_t prompt_tokens, std::int64_t tokens) {
  const Architecture& a = model.architecture();
  const std::int64_t dense = system.decide.full_attention_layers();
  if (all_in_memory(system) || dense >= a.layers) return 0;
  const LayerShape shape = layer_shape(a, dense, prompt_tokens, tokens);
  std::int64_t entry_bytes = std::numeric_limits<std::int64_t>::max();
  const auto precision = system.decide.precision.make(
      {shape.stream(0, a.kv_heads), tokens, nullptr, shape.rope, true});
  for (const EntryFormat& format : precision->formats()) {
    entry_bytes = std::min(entry_bytes, format.entry_bytes(a.kv_heads, a.head_dim));
  }
  const auto half = static_cast<std::uint64_t>(prompt_tokens * entry_bytes / 2);
  const std::uint64_t regions =
      std::max<std::uint64_t>(1, (half + kRegionAlignment - 1) / kRegionAlignment);
  return static_cast<std::uint64_t>(a.layers - dense) * regions * kRegionAlignment;
}

void check_live_system(const Model& model, const SystemSpec& system, std::int64_t prompt_tokens,
                       std::int64_t tokens) {
  const Architecture& a = model.architecture();
  const std::int64_t dense =
      all_in_memory(system) ? a.layers : system.decide.full_attention_layers();
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const LayerShape shape = layer_shape(a, i, prompt_tokens, tokens);
    if (compares_layers(system.decide, shape)) {
      throw UserError(system.decide.retention.arguments().place("part"),
                      system.decide.retention.name(),
                      "a part that does not compare layers: live prefills one after the other");
    }
    if (i == dense) check_live(system.decide, system.place, shape);
  }
}

LiveResult run_live(const Model& model, const SystemSpec& system, const BlockTarget* target,
                    const LiveIo::Options& io, const LiveOptions& options) {
  const std::int64_t tokens = options.prompt_tokens + options.steps;
  check_text(model, options.text.ids, options.prompt_tokens, options.steps,
             options.sampling ? options.prompt_tokens : tokens);
  const SystemSpec used = as_live_runs_it(system);
  return LiveSequence(model, used, target, io, options).run();
}

ModelSpec model_spec_of(const Model& model) {
  const Architecture& a = model.architecture();
  const bool tied = model.embedding().same_data(model.output());
  const nlohmann::json spec{
      {"title", model.name()},        {"source", "its model file"},
      {"layers", a.layers},           {"hidden_size", a.hidden_size},
      {"query_heads", a.query_heads}, {"kv_heads", a.kv_heads},
      {"head_dim", a.head_dim},       {"ffn_size", a.ffn_size},
      {"vocabulary", a.vocabulary},   {"weight_bits", model.output().weight_bits()},
      {"tied_embeddings", tied}};
  return ModelSpec::parse(ConfigNode::parse(spec.dump(), model.file()), model.name());
}

void check_shape(const Model& model, const ModelSpec& config, const SourceLocation& place) {
  const ModelSpec own = model_spec_of(model);
  std::vector<std::string> differ;
  const auto compare = [&](const std::string& what, std::int64_t of_file, std::int64_t of_config) {
    if (of_file == of_config) return;
    differ.push_back(what + " " + std::to_string(of_config) + " where " + model.name() + " has " +
                     std::to_string(of_file));
  };
  compare("layers", own.layers, config.layers);
  compare("hidden_size", own.hidden_size, config.hidden_size);
  compare("vocabulary", own.vocabulary, config.vocabulary);
  for (std::int64_t i = 0; i < own.layers && i < config.layers && differ.empty(); ++i) {
    const LayerSpec& file = own.layer(i);
    const LayerSpec& other = config.layer(i);
    const std::string of_layer = "layer " + std::to_string(i) + ": ";
    compare(of_layer + "attends", file.attends ? 1 : 0, other.attends ? 1 : 0);
    compare(of_layer + "query_heads", file.query_heads, other.query_heads);
    compare(of_layer + "kv_heads", file.kv_heads, other.kv_heads);
    compare(of_layer + "head_dim", file.head_dim, other.head_dim);
    compare(of_layer + "weights of feed-forward", file.ffn_weights, other.ffn_weights);
    compare(of_layer + "experts", file.experts, other.experts);
  }
  if (differ.empty()) return;
  throw UserError(place, config.name + " has " + join(differ),
                  "the config of the model that is run (`kvreplay model from-config` makes one)");
}

CellResult live_cell(const Model& model, const SystemSpec& system, const std::string& device,
                     const LiveOptions& options, const LiveResult& result) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const ModelSpec spec = model_spec_of(model);
  CellResult cell;
  cell.trace = options.text.source;
  cell.system = system.name;
  cell.model = model.name();
  cell.platform = host_facts().name;
  cell.device = device;
  cell.projection = "none";
  cell.platform_dram_bytes = total_memory_bytes();
  Timing& timing = cell.timing;
  timing.steps = result.steps;
  double attended = 0;
  double attended_by_selection = 0;
  std::int64_t selecting = 0;
  for (const LayerPlan& layer : result.plan.layers) {
    for (std::size_t step = 0; step < layer.accounting.requested_bytes.size(); ++step) {
      timing.add(layer, step);
      attended += layer.compute.attended_tokens[step];
      if (!layer.full_attention) attended_by_selection += layer.compute.attended_tokens[step];
    }
    if (layer.full_attention) continue;
    ++selecting;
    timing.prompt_write_bytes += static_cast<std::int64_t>(layer.io.prompt_write_bytes);
    timing.region_bytes += static_cast<std::int64_t>(layer.io.region_bytes);
    timing.live_bytes += static_cast<std::int64_t>(layer.io.live_bytes);
  }
  for (const StepTiming& step : result.steps) timing.flash_read_bytes += step.read_bytes;
  const auto steps = static_cast<double>(result.steps.size());
  timing.attended_tokens = attended / steps / static_cast<double>(spec.layers);
  timing.dram = dram_use(result.plan, spec, *system.pipeline.make({}), 1);
  cell.quality.recall = kUnknown;
  cell.quality.attention_mass = kUnknown;
  cell.quality.best_attention_mass = kUnknown;
  cell.quality.output_error = kUnknown;
  cell.quality.residual_error = kUnknown;
  cell.worst_layer_error = kUnknown;
  cell.timing.stored_bits = kUnknown;
  cell.quality.attended_tokens =
      selecting == 0 ? kUnknown : attended_by_selection / steps / static_cast<double>(selecting);
  return cell;
}

}  // namespace kvreplay
