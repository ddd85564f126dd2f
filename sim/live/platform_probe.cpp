#include "sim/live/platform_probe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "base/random.hpp"
#include "base/statistics.hpp"
#include "devices/real/host.hpp"
#include "devices/real/io_engine.hpp"
#include "policies/decide/stream_policy.hpp"
#include "policies/kernels/kernels.hpp"
#include "sim/live/live_layer.hpp"
#include "sim/live/live_machine.hpp"
#include "sim/live/live_run.hpp"
#include "sim/models/half_rows.hpp"
#include "sim/models/layer_shape.hpp"
#include "sim/models/transformer.hpp"

namespace kvreplay {
namespace {

using Json = nlohmann::ordered_json;

double us_since(std::int64_t begin) {
  return static_cast<double>(monotonic_ns() - begin) * 1e-3;
}

/// Calls work() for about so many seconds, three times at least; the median of what it returns.
template <typename Work>
double repeated(double seconds, Work&& work) {
  const std::int64_t end = monotonic_ns() + std::llround(seconds * 1e9);
  std::vector<double> values;
  while (values.size() < 3 || monotonic_ns() < end) values.push_back(work());
  return median(values);
}

/// Rows of random vectors.
HalfRows random_rows(std::int64_t heads, std::int64_t tokens, std::int64_t dim, Random& random) {
  HalfRows rows(heads, tokens, dim);
  std::vector<float> row(static_cast<std::size_t>(heads * dim));
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (float& element : row) element = static_cast<float>(2 * random.uniform() - 1);
    rows.put(token, row.data());
  }
  return rows;
}

class Probe {
 public:
  Probe(const Model& model, const PlatformProbeOptions& options)
      : model_(model),
        architecture_(model.architecture()),
        options_(options),
        random_(options.seed),
        pool_(options.threads),
        transformer_(model, kRows, pool_),
        spec_(model_spec_of(model)) {}

  PlatformMeasurement run() {
    result_.model = model_.name();
    result_.threads = options_.threads;
    result_.weight_bits = spec_.weight_bits;
    result_.memory_bytes = total_memory_bytes();
    note_host();
    const ProcessorTime before = processor_time();
    matrix_vector();
    matrix_matrix();
    memory();
    barrier();
    layers();
    result_.stolen_share = stolen_share(before, processor_time());
    if (const std::string text = disturbance(result_.stolen_share); !text.empty()) {
      result_.notes.push_back(text);
    }
    return std::move(result_);
  }

 private:
  static constexpr std::int64_t kRows = 128;  ///< of a product of matrices: at as many positions
  static constexpr std::int64_t kLayers = 4;  ///< of a system, so that none stays in a cache
  static constexpr std::int64_t kSteps = 48;
  static constexpr std::int64_t kLeastSteps = 12;
  static constexpr std::int64_t kWindow = 32;
  static constexpr std::uint64_t kScratchBytes = 256 << 20;
  static constexpr std::uint32_t kSmallBytes = 16 << 10;
  static constexpr std::uint32_t kLargeBytes = 512 << 10;
  static constexpr std::uint32_t kWrittenBytes = 4 << 10;  // a block that holds a new entry
  static constexpr std::size_t kLeastClosed = 32;          ///< bursts of a closed loop
  static constexpr double kNoUs = 0.001;                   ///< a table's times are above 0

  void say(const std::string& what) const {
    if (options_.on_point) options_.on_point(what);
  }

  /// Whole decode steps without attention, so that weights come from where they come from then.
  void matrix_vector() {
    say("matrix-vector products");
    std::vector<double> project;
    std::vector<double> rest;
    std::vector<double> head;
    const std::int32_t id = 0;
    const std::int64_t position = 0;
    (void)repeated(3 * options_.seconds, [&] {
      transformer_.begin({&id, 1}, {&position, 1});
      double projecting = 0;
      double finishing = 0;
      for (std::int64_t layer = 0; layer < architecture_.layers; ++layer) {
        std::int64_t begin = monotonic_ns();
        transformer_.project(layer, Transformer::kQueries | Transformer::kKeyValues);
        projecting += us_since(begin);
        std::fill(transformer_.attended().begin(), transformer_.attended().end(), 0.0F);
        begin = monotonic_ns();
        transformer_.finish_layer();
        finishing += us_since(begin);
      }
      const std::int64_t begin = monotonic_ns();
      (void)transformer_.logits(transformer_.finish());
      head.push_back(us_since(begin));
      project.push_back(projecting / static_cast<double>(architecture_.layers));
      rest.push_back(finishing / static_cast<double>(architecture_.layers));
      return 0.0;
    });
    std::vector<MeasuredKernel::Point> points;
    const auto add = [&](std::int64_t weights, const std::vector<double>& us) {
      points.push_back({static_cast<double>(weights), median(us)});
    };
    const LayerSpec& layer = spec_.layer(0);
    add(layer.query_weights + layer.key_value_weights, project);
    add(layer.output_weights + layer.ffn_weights, rest);
    add(spec_.head_weights(), head);
    sort(points);
    result_.kinds["matrix_vector"][""] = points;
  }

  void matrix_matrix() {
    say("matrix-matrix products");
    const std::vector<std::int32_t> ids(kRows);
    std::vector<std::int64_t> positions(kRows);
    std::iota(positions.begin(), positions.end(), 0);
    const double us = repeated(options_.seconds, [&] {
      transformer_.begin(ids, positions);
      const std::int64_t begin = monotonic_ns();
      transformer_.project(0, Transformer::kQueries | Transformer::kKeyValues);
      std::fill(transformer_.attended().begin(), transformer_.attended().end(), 0.0F);
      transformer_.finish_layer();
      return us_since(begin);
    });
    const LayerSpec& layer = spec_.layer(0);
    const auto weights = static_cast<double>(layer.query_weights + layer.key_value_weights +
                                             layer.output_weights + layer.ffn_weights);
    result_.matrix_gflop_s = 2 * weights * kRows / us * 1e-3;
  }

  /// Work that a layer did at one step, and its time.
  struct Sample {
    std::string part;
    double work = 0;
    double us = 0;
  };

  void layers() {
    if (options_.scratch.empty()) return;
    const BlockTarget target = options_.overwrite_scratch
                                   ? BlockTarget::open_destructive(options_.scratch)
                                   : BlockTarget::create(options_.scratch, kScratchBytes);
    if (target.size_bytes() < kScratchBytes) {
      throw UserError({options_.scratch, ""}, std::to_string(target.size_bytes()) + " bytes",
                      std::to_string(kScratchBytes) + " bytes or more");
    }
    LiveIo::Options io{.engine = choose_engine(target, "").name, .limits = {}};
    io.limits.logical_block_bytes =
        std::max(io.limits.logical_block_bytes, target.alignment().offset_bytes);
    for (const SystemSpec& given : options_.systems) {
      const SystemSpec system = as_live_runs_it(given);
      if (system.place.cache.make({})->holds_everything()) continue;
      for (const std::int64_t prompt : {std::int64_t{512}, std::int64_t{1536}}) {
        say("layers of " + system.name + " after " + std::to_string(prompt) + " tokens");
        try {
          run_layers(system, prompt, target, io);
        } catch (const UserError&) {
          break;  // what live cannot run; its parts stay estimates
        }
      }
    }
    reads_in_a_step(target, io);
    for (auto& [kind, samples] : samples_) {
      std::map<std::string, std::vector<Sample>> by_part;
      for (const Sample& sample : samples) by_part[sample.part].push_back(sample);
      for (const auto& [part, of_part] : by_part) {
        std::vector<MeasuredKernel::Point> points = line(of_part);
        if (!points.empty()) result_.kinds[kind][part] = points;
      }
    }
  }

  /// Some layers of a system, each after the products of one of the model's.
  void run_layers(const SystemSpec& system, std::int64_t prompt, const BlockTarget& target,
                  const LiveIo::Options& io_options) {
    const Architecture& a = architecture_;
    LiveIo io(target, io_options);
    DecodedRows rows(a.kv_heads, prompt + kSteps, a.head_dim);
    EntryMemory memory(2 * kLayers * a.kv_heads, prompt + kSteps);  // each layer is made twice
    const std::int64_t dense = system.decide.full_attention_layers();
    const std::int64_t count = std::min<std::int64_t>(kLayers, a.layers - dense);
    const std::uint64_t region = kScratchBytes / kLayers / 2;
    const auto pipeline = system.pipeline.make({});
    const RandomAdapters adapters(a);
    std::vector<std::unique_ptr<LiveLayer>> layers;
    DecideSpec without = system.decide;
    without.precision = PartConfig<Precision>::by_name("fp16");
    for (std::int64_t i = 0; i < count; ++i) {
      const LayerShape shape = layer_shape(a, dense + i, prompt, prompt + kSteps);
      check_live(system.decide, system.place, shape);
      const std::uint64_t offset = 2 * static_cast<std::uint64_t>(i) * region;
      const LiveLayer::Options layer{.prompt_tokens = prompt,
                                     .max_tokens = prompt + kSteps,
                                     .region = {offset, region},
                                     .index_region = {offset + region, region},
                                     .limits = io.limits(),
                                     .target = target.path()};
      const HalfRows keys = random_rows(a.kv_heads, prompt, a.head_dim, random_);
      const HalfRows values = random_rows(a.kv_heads, prompt, a.head_dim, random_);
      const HalfRows queries = random_rows(a.query_heads, kWindow, a.head_dim, random_);
      const auto after_prompt = [&](const DecideSpec& decide) {
        auto made = std::make_unique<LiveLayer>(
            decide, system.place, shape,
            PolicyOptions{.adapters = &adapters, .seed = options_.seed}, layer, rows, memory,
            [&io](std::span<const IoCommand> commands, LiveIo::Reader& reader) {
              LiveIo::Batch batch;
              io.read(commands, reader, batch);
              io.wait(batch);
            });
        made->add_prompt({keys.first(prompt), values.first(prompt)},
                         {queries.first(kWindow), prompt - kWindow}, io);
        io.wait(made->prompt_batch());
        made->end_prompt();
        return made;
      };
      // A factorisation takes what the index takes longer with it.
      const bool plain = system.decide.precision.name() == without.precision.name();
      const std::int64_t plain_ns = plain ? 0 : after_prompt(without)->work().index_ns;
      layers.push_back(after_prompt(system.decide));
      std::int64_t factorise_flops = 0;
      for (const auto& stream : layers.back()->policy().streams()) {
        factorise_flops += stream->log().prompt_work.factorise_flops;
      }
      if (plain || factorise_flops == 0) continue;
      const std::int64_t ns = layers.back()->work().index_ns - plain_ns;
      samples_["factorise"].push_back(
          {"", static_cast<double>(factorise_flops), static_cast<double>(ns) * 1e-3});
    }
    const auto transfer = [&](TransferKind kind, LiveLayer& layer) {
      LiveIo::Batch batch;
      const std::int64_t begin = monotonic_ns();
      layer.start(kind, io, batch);
      const bool at_once = batch.left <= io_options.limits.queue_depth;
      if (kind != TransferKind::kWrites && batch.left > 0 && at_once) {
        samples_["submit"].push_back({"", static_cast<double>(batch.left), us_since(begin)});
      }
      do {
        io.wait(batch);
      } while (layer.go_on(kind, io, batch));
    };
    std::vector<float> query(static_cast<std::size_t>(a.query_size()));
    std::vector<float> entry(static_cast<std::size_t>(a.kv_size()));
    const auto draw = [&](std::vector<float>& row) {
      for (float& element : row) element = static_cast<float>(2 * random_.uniform() - 1);
    };
    const std::int64_t end = monotonic_ns() + std::llround(options_.seconds * 1e9);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (step >= kLeastSteps && monotonic_ns() > end) break;
      const std::int32_t id = 0;
      const std::int64_t position = 0;
      transformer_.begin({&id, 1}, {&position, 1});
      for (std::int64_t i = 0; i < count; ++i) {
        LiveLayer& layer = *layers[static_cast<std::size_t>(i)];
        transformer_.project(i, Transformer::kQueries | Transformer::kKeyValues);
        draw(query);
        draw(entry);
        const LiveLayerWork before = layer.work();
        layer.select(query);
        if (pipeline->index_on_flash()) transfer(TransferKind::kIndexReads, layer);
        if (pipeline->pages_cache()) transfer(TransferKind::kCacheReads, layer);
        transfer(TransferKind::kReads, layer);
        layer.attend(entry.data(), entry.data(), query, transformer_.attended().data());
        transformer_.finish_layer();
        layer.add_token();
        note(system, layer, before);
        transfer(TransferKind::kWrites, layer);
      }
    }
  }

  struct Burst {
    std::size_t count;
    std::uint32_t bytes;
    bool write;
  };

  /// A layer that computes its products, and one burst of commands.
  class BurstWork final : public LiveWork {
   public:
    BurstWork(LiveIo& io, Random& random, std::function<void()> compute_layer)
        : io_(io), random_(random), compute_layer_(std::move(compute_layer)) {}

    void choose(const Burst& burst) { burst_ = burst; }
    [[nodiscard]] std::int64_t begun_ns() const { return begun_ns_; }
    /// What handing them over took.
    [[nodiscard]] double submit_us() const { return submit_us_; }

    [[nodiscard]] std::size_t layers() const override { return 1; }
    void compute(Kernels /*kernels*/, std::size_t /*layer*/) override { compute_layer_(); }
    void start(TransferKind /*kind*/, std::size_t /*layer*/, LiveIo::Batch& batch) override {
      commands_.clear();
      for (std::size_t i = 0; i < burst_.count; ++i) {
        const std::uint64_t at = random_.below(kScratchBytes / burst_.bytes) * burst_.bytes;
        commands_.push_back({at, burst_.bytes, burst_.write});
      }
      begun_ns_ = monotonic_ns();
      if (burst_.write) {
        io_.write(commands_, written_, batch);
      } else {
        io_.read(commands_, nobody_, batch);
      }
      submit_us_ = us_since(begun_ns_);
    }
    [[nodiscard]] bool go_on(TransferKind /*kind*/, std::size_t /*layer*/,
                             LiveIo::Batch& /*batch*/) override {
      return false;
    }

   private:
    struct Nobody final : LiveIo::Reader {
      void on_read(const IoCommand& /*command*/, std::span<const std::byte> /*bytes*/) override {}
    };

    LiveIo& io_;
    Random& random_;
    std::function<void()> compute_layer_;
    Nobody nobody_;
    const std::vector<std::byte> written_ = std::vector<std::byte>(kWrittenBytes);
    Burst burst_{};
    std::vector<IoCommand> commands_;
    std::int64_t begun_ns_ = 0;
    double submit_us_ = 0;
  };

  /// A burst after the products of so many layers, and beside those of one more where `beside`.
  static StepTask burst_step(LiveMachine& machine, TransferKind kind, int layers, bool beside) {
    for (int done = 0; done < layers; ++done) co_await machine.compute(Kernels::kAttend, 0);
    machine.start(kind, 0);
    if (beside) co_await machine.compute(Kernels::kAttend, 0);
    co_await machine.wait(kind, 0);
  }

  /// What transfers take longer in a step than in a closed loop of the device: after pauses in
  /// which the processor computed (`wake`), and where it goes on while they are under way
  /// (`beside`). Handing over their second command and the further ones, which `submit` has, is
  /// taken off. And what these computations take longer (`hand_over`).
  void reads_in_a_step(const BlockTarget& target, const LiveIo::Options& io_options) {
    say("reads after pauses and beside computation");
    static constexpr std::array<Burst, 4> kBursts{{{1, kSmallBytes, false},
                                                   {16, kSmallBytes, false},
                                                   {1, kLargeBytes, false},
                                                   {1, kWrittenBytes, true}}};
    LiveIo io(target, io_options);
    std::int64_t layer = architecture_.layers;
    const auto compute_layer = [&] {
      const std::int32_t id = 0;
      const std::int64_t position = 0;
      if (layer == architecture_.layers) {
        transformer_.begin({&id, 1}, {&position, 1});
        layer = 0;
      }
      transformer_.project(layer, Transformer::kQueries | Transformer::kKeyValues);
      std::fill(transformer_.attended().begin(), transformer_.attended().end(), 0.0F);
      transformer_.finish_layer();
      ++layer;
    };
    BurstWork work(io, random_, compute_layer);
    LiveMachine machine(work, &io, options_.threads < processor_count());
    struct AfterPause {
      std::vector<double> pause_us;
      std::array<std::vector<double>, kBursts.size()> burst_us;
      std::array<std::vector<double>, kBursts.size()> submit_us;
      std::vector<double> idle_us;  // of the thread that computes beside bursts
      std::vector<double> hand_over_us;
    };
    // Pauses of no, one, two ... layers.
    constexpr std::array<int, 5> kPauses{0, 1, 2, 4, 8};
    using AfterPauses = std::array<AfterPause, kPauses.size()>;
    const auto run_burst = [&](std::size_t which, int pause, bool beside) {
      const TransferKind kind = kBursts[which].write ? TransferKind::kWrites : TransferKind::kReads;
      work.choose(kBursts[which]);
      const std::int64_t busy_ns = io.busy_ns(0);
      machine.run(burst_step(machine, kind, pause, beside));
      return io.busy_ns(0) - busy_ns;
    };
    std::array<double, kBursts.size()> closed_us{};
    for (std::size_t which = 0; which < kBursts.size(); ++which) {
      std::vector<double> took_us;
      const std::int64_t end = monotonic_ns() + std::llround(options_.seconds * 1e9);
      while (took_us.size() < kLeastClosed || monotonic_ns() < end) {
        took_us.push_back(static_cast<double>(run_burst(which, 0, false)) * 1e-3);
      }
      closed_us[which] = median(took_us);
    }
    const auto measure = [&](const char* name, bool beside) {
      AfterPauses after;
      std::int64_t last_ns = monotonic_ns();
      std::int64_t handed_ns = machine.hand_over_ns();
      const std::int64_t end = last_ns + std::llround(10 * options_.seconds * 1e9);
      while (after[0].pause_us.size() < 3 * kBursts.size() || monotonic_ns() < end) {
        for (std::size_t which = 0; which < kBursts.size(); ++which) {
          for (std::size_t i = 0; i < kPauses.size(); ++i) {
            const std::int64_t took_ns = run_burst(which, kPauses[i], beside);
            after[i].pause_us.push_back(static_cast<double>(work.begun_ns() - last_ns) * 1e-3);
            after[i].burst_us[which].push_back(static_cast<double>(took_ns) * 1e-3);
            after[i].submit_us[which].push_back(work.submit_us());
            if (const std::int64_t before = std::exchange(handed_ns, machine.hand_over_ns());
                handed_ns > before) {
              const LiveMachine::HandOver& hand_over = machine.last_hand_over();
              after[i].idle_us.push_back(static_cast<double>(hand_over.idle_ns) * 1e-3);
              after[i].hand_over_us.push_back(static_cast<double>(hand_over.took_ns) * 1e-3);
            }
            last_ns = work.begun_ns() + took_ns;
          }
        }
      }
      MeasuredParts& parts = result_.kinds[name];
      constexpr double kKib = 1024;
      for (const AfterPause& pause : after) {
        const auto longer_us = [&](std::size_t which) {
          return median(pause.burst_us[which]) - closed_us[which];
        };
        const double small = kSmallBytes / kKib;
        const double of_one = longer_us(0);
        const double kib = std::max((longer_us(2) - of_one) / (kLargeBytes / kKib - small), 0.0);
        const double others = static_cast<double>(kBursts[1].count - 1);
        const double others_us = median(pause.submit_us[1]) - median(pause.submit_us[0]);
        const double command =
            std::max((longer_us(1) - of_one - others_us) / others - small * kib, 0.0);
        const double transfer = of_one - command - small * kib;
        const double pause_us = std::max(median(pause.pause_us), kNoUs);
        parts["transfer"].push_back({pause_us, std::max(transfer, kNoUs)});
        parts["command"].push_back({pause_us, std::max(command, kNoUs)});
        parts["kib"].push_back({pause_us, std::max(kib, kNoUs)});
        parts["write"].push_back({pause_us, std::max(longer_us(3), kNoUs)});
        if (!pause.idle_us.empty()) {
          result_.kinds["hand_over"][""].push_back({std::max(median(pause.idle_us), kNoUs),
                                                    std::max(median(pause.hand_over_us), kNoUs)});
        }
      }
      for (auto& [part, points] : parts) sort(points);
    };
    measure("wake", false);
    measure("beside", true);
    if (result_.kinds.count("hand_over") > 0) sort(result_.kinds["hand_over"][""]);
  }

  void note(const SystemSpec& system, LiveLayer& layer, const LiveLayerWork& before) {
    const LiveLayerWork& now = layer.work();
    const auto add = [&](const char* kind, const std::string& part, std::int64_t work,
                         std::int64_t ns) {
      if (work <= 0) return;
      samples_[kind].push_back({part, static_cast<double>(work), static_cast<double>(ns) * 1e-3});
    };
    const bool alone = layer.policy().streams()[0]->log().rows > 1;
    const DecideSpec& decide = system.decide;
    add("score", decide.scoring.name(), now.score_flops - before.score_flops,
        now.score_ns - before.score_ns);
    add("fetch", "", now.fetched_entries - before.fetched_entries, now.fetch_ns - before.fetch_ns);
    add("decode", decide.precision.name(), now.decoded_entries - before.decoded_entries,
        now.decode_ns - before.decode_ns);
    add("buffered", decide.precision.name(), now.buffered_entries - before.buffered_entries,
        now.buffered_ns - before.buffered_ns);
    add("attention", alone ? decide.grouping.name() : "together",
        now.attended_elements - before.attended_elements, now.attend_ns - before.attend_ns);
    add("append", decide.grouping.name(),
        architecture_.kv_heads + now.regrouped_entries - before.regrouped_entries,
        now.append_ns - before.append_ns);
  }

  /// us = a + b * work with neither below 0, as its ends: least squares of relative errors, of the
  /// samples' medians by work, so that a sample that was interrupted does not count.
  static std::vector<MeasuredKernel::Point> line(const std::vector<Sample>& samples) {
    std::map<std::int64_t, std::vector<MeasuredKernel::Point>> bins;  // a quarter of an octave each
    for (const Sample& sample : samples) {
      bins[std::llround(4 * std::log2(sample.work))].push_back({sample.work, sample.us});
    }
    std::array<double, 5> sums{};  // of 1, w, w^2, t, w t, each over t^2
    double first = 0;
    double last = 0;
    for (const auto& [bin, points] : bins) {
      std::vector<double> work;
      std::vector<double> us;
      for (const MeasuredKernel::Point& point : points) {
        work.push_back(point.work);
        us.push_back(point.us);
      }
      const double w = median(work);
      const double t = std::max(median(us), 1e-3);
      // A bin that few steps fell into says less.
      const double weight = std::sqrt(static_cast<double>(points.size())) / (t * t);
      sums[0] += weight;
      sums[1] += weight * w;
      sums[2] += weight * w * w;
      sums[3] += weight * t;
      sums[4] += weight * w * t;
      if (first == 0) first = w;
      last = w;
    }
    if (first == 0) return {};
    const double determinant = sums[0] * sums[2] - sums[1] * sums[1];
    double slope = determinant > 1e-9 * sums[0] * sums[2]
                       ? (sums[0] * sums[4] - sums[1] * sums[3]) / determinant
                       : 0;
    slope = std::max(slope, 0.0);
    double base = (sums[3] - slope * sums[1]) / sums[0];
    if (base < 0) {
      base = 0;
      slope = sums[4] / sums[2];
    }
    last = std::max(last, 1.5 * first);
    return {{first, base + slope * first}, {last, base + slope * last}};
  }

  /// Of any content, in the shape of joint_lowrank.
  class RandomAdapters final : public AdapterSource {
   public:
    explicit RandomAdapters(const Architecture& architecture) : width_(architecture.kv_size()) {}
    [[nodiscard]] Adapter adapter(std::int64_t layer, const std::string& name) const override {
      if (name != "joint_lowrank") {
        throw UserError({"platform probe", ""}, "a system that needs " + name, "joint_lowrank");
      }
      Random random(static_cast<std::uint64_t>(layer));
      Adapter made{.shape = {width_, width_}, .values = {}, .text_sha256 = {}};
      for (std::int64_t i = 0; i < width_ * width_; ++i) {
        made.values.push_back(static_cast<float>(2 * random.uniform() - 1));
      }
      return made;
    }

   private:
    std::int64_t width_;
  };

  void memory() {
    say("memory bandwidth");
    constexpr std::int64_t kPiece = 4 << 20;
    constexpr std::int64_t kPieces = 64;
    std::vector<float> data(kPiece * kPieces / sizeof(float), 1.0F);
    std::vector<float> sums(kPieces);
    const double us = repeated(options_.seconds, [&] {
      const std::int64_t begin = monotonic_ns();
      pool_.run(kPieces, [&](std::int64_t piece) {
        constexpr std::int64_t kElements = kPiece / std::int64_t{sizeof(float)};
        const float* from = data.data() + piece * kElements;
        sums[static_cast<std::size_t>(piece)] = kernels::dot(from, from, kElements);
      });
      return us_since(begin);
    });
    result_.memory_gb_s = static_cast<double>(kPiece * kPieces) / us * 1e-3;
  }

  void barrier() {
    say("barriers");
    constexpr int kLoops = 100;
    result_.barrier_us = repeated(options_.seconds / 2, [&] {
      const std::int64_t begin = monotonic_ns();
      for (int i = 0; i < kLoops; ++i) pool_.run(options_.threads, [](std::int64_t) {});
      return us_since(begin) / kLoops;
    });
  }

  void note_host() {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cpufreq/";
    for (const char* name : {"scaling_governor", "scaling_cur_freq", "cpuinfo_max_freq"}) {
      std::ifstream stream(folder + name);
      if (std::string text; stream >> text) {
        result_.notes.push_back(std::string(name) + " " + text);
      }
    }
    for (const Temperature& zone : temperatures()) {
      result_.notes.push_back(zone.zone + " " + std::to_string(std::lround(zone.celsius)) + " C");
    }
  }

  /// By rising work; of equal work the first.
  static void sort(std::vector<MeasuredKernel::Point>& points) {
    std::stable_sort(points.begin(), points.end(),
                     [](const auto& a, const auto& b) { return a.work < b.work; });
    points.erase(std::unique(points.begin(), points.end(),
                             [](const auto& a, const auto& b) { return a.work == b.work; }),
                 points.end());
  }

  const Model& model_;
  const Architecture& architecture_;
  const PlatformProbeOptions& options_;
  Random random_;
  WorkerPool pool_;
  Transformer transformer_;
  ModelSpec spec_;
  PlatformMeasurement result_;
  std::map<std::string, std::vector<Sample>> samples_;  // by kind
};

}  // namespace

PlatformMeasurement probe_platform(const Model& model, const PlatformProbeOptions& options) {
  return Probe(model, options).run();
}

std::string platform_json(const PlatformMeasurement& measurement, const std::string& title,
                          const std::string& source) {
  const auto sourced = [&](const Json& value, const std::string& what) {
    return Json{{"value", value}, {"source", what + " (" + source + ")"}};
  };
  const auto points = [](const std::vector<MeasuredKernel::Point>& from) {
    Json list = Json::array();
    for (const MeasuredKernel::Point& point : from) {
      list.push_back({point.work, std::round(point.us * 1e3) / 1e3});
    }
    return list;
  };
  Json json;
  json["title"] = title;
  json["source"] = source;
  json["compute_gflop_s"] =
      sourced(measurement.matrix_gflop_s, "measured: products of one layer with 128 rows");
  json["compute_share"] = sourced(1.0, "the rate is what kernels reach");
  json["dram_bandwidth_gb_s"] =
      sourced(measurement.memory_gb_s, "measured: reads of 256 MiB by all threads");
  json["dram_bandwidth_share"] = sourced(1.0, "the bandwidth is what kernels reach");
  json["dram_bytes"] = sourced(measurement.memory_bytes, "as the system reports it");
  json["layer_overhead_us"] =
      sourced(7 * measurement.barrier_us, "measured: seven empty loops on all threads");
  json["selection_overhead_us"] = sourced(0.0, measurement.kinds.count("score") > 0
                                                   ? "part of the scores that are measured below"
                                                   : "not measured");
  Json kernels;
  kernels["source"] = source;
  kernels["about"] = {{"model", measurement.model}, {"host", measurement.notes}};
  kernels["weight_bits"] = measurement.weight_bits;
  kernels["threads"] = measurement.threads;
  for (const auto& [kind, parts] : measurement.kinds) {
    for (const auto& [part, list] : parts) {
      (part.empty() ? kernels[kind] : kernels[kind][part]) = points(list);
    }
  }
  json["kernels"] = kernels;
  return json.dump(2) + '\n';
}

}  // namespace kvreplay
