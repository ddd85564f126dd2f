#include "policies/decide/layer_policy.hpp"

#include <array>
#include <cassert>
#include <nlohmann/json.hpp>

#include "base/argument_json.hpp"
#include "base/random.hpp"
#include "policies/decide/kept_columns.hpp"
#include "policies/decide/stream_policy.hpp"

namespace kvreplay {
namespace {

constexpr Range kTokenRange{0, 1e9};

/// Full attention is a stream whose sinks never end: every token stays in memory, outside any
/// group.
DecideSpec with_full_attention(DecideSpec spec) {
  const std::span<const Parameter> parameters = DecideSpec::stream_parameters();
  for (const Parameter& parameter : parameters) {
    if (parameter.name == "sink_tokens") {
      spec.stream.set(parameter, {static_cast<std::int64_t>(parameter.maximum), "", false});
    }
  }
  spec.grouping = PartConfig<Grouping>::by_name("whole");
  spec.scoring = PartConfig<Scoring>::by_name("all");
  spec.selection = PartConfig<Selection>::by_name("everything");
  spec.retention = PartConfig<Retention>::by_name("all");
  return spec;
}

}  // namespace

std::span<const Parameter> DecideSpec::stream_parameters() {
  static const std::array kParameters{
      choice_parameter("heads", {"kv_head", "layer"}, "kv_head",
                       "a stream is one KV head, or all KV heads of a layer jointly"),
      choice_parameter(
          "query", {"current", "look_ahead"}, "current",
          "the query used for scoring: the step's own, or the one predicted a layer earlier; "
          "attention always uses the true one"),
      integer_parameter("sink_tokens", "tokens", 0, kTokenRange,
                        "first tokens, which stay in memory and are always attended to"),
      integer_parameter("recent_tokens", "tokens", 0, kTokenRange,
                        "last tokens, which are in memory; a token is grouped when it leaves them"),
      choice_parameter("index", {"exact", "stored"}, "exact",
                       "what the index sees of entries once they are stored, as when a cluster is "
                       "split: the vectors as they were made, or as they come back from storage"),
      flag_parameter("attend_buffered", true,
                     "attend to all tokens in memory; false: only to sinks among them"),
      integer_parameter("window_queries", "queries", 0, kTokenRange,
                        "the prompt's last queries that log the groups that they would "
                        "select; layouts by co-retrieval need them"),
      integer_parameter("dense_layers", "layers", 0, {0, 10000},
                        "the model's first layers, which stay in memory and use full attention"),
  };
  return kParameters;
}

DecideSpec DecideSpec::parse(const ConfigNode& system) {
  DecideSpec spec;
  spec.stream = system.has("stream") ? parse_arguments(system.at("stream"), stream_parameters())
                                     : Arguments::defaults(stream_parameters(), system.place());
  for_parts(spec, [&]<typename Role>(PartConfig<Role>& chosen) {
    chosen = PartConfig<Role>::parse_member(system);
  });
  return spec;
}

std::string DecideSpec::resolved() const {
  nlohmann::json object;
  object["stream"] = to_json(stream);
  for_parts(*this, [&]<typename Role>(const PartConfig<Role>& chosen) {
    object[std::string(Role::kRole)] = part_json(chosen.name(), chosen.arguments());
  });
  return object.dump();
}

bool DecideSpec::depends_on_model() const {
  bool depends = false;
  for_parts(*this, [&]<typename Role>(const PartConfig<Role>& chosen) {
    for (const Parameter& parameter : chosen.part().parameters) {
      depends |= parameter.unit == kOfModelColumns;
    }
  });
  return depends;
}

LayerPolicy::LayerPolicy(const DecideSpec& spec, const LayerShape& shape,
                         const PolicyOptions& options)
    : shape_(shape),
      full_attention_(shape.layer < spec.full_attention_layers()),
      look_ahead_(spec.stream.text("query") == "look_ahead"),
      attention_(static_cast<std::size_t>(shape.query_heads)) {
  const DecideSpec used = full_attention_ ? with_full_attention(spec) : spec;
  const bool joint = used.stream.text("heads") == "layer";
  const std::int64_t heads = joint ? shape.kv_heads : 1;
  const std::uint64_t layer_seed =
      Random::derive(options.seed, static_cast<std::uint64_t>(shape.layer));
  std::shared_ptr<void> of_layer;
  for (std::int64_t first = 0; first < shape.kv_heads; first += heads) {
    PolicyOptions of_stream = options;
    of_stream.of_layer = &of_layer;
    of_stream.seed = Random::derive(layer_seed, static_cast<std::uint64_t>(first));
    streams_.push_back(
        std::make_unique<StreamPolicy>(used, shape.stream(first, heads), shape, of_stream));
  }
}

LayerPolicy::~LayerPolicy() = default;
LayerPolicy::LayerPolicy(LayerPolicy&&) noexcept = default;

void LayerPolicy::add_prompt(const Entries& entries, const QueryWindow& window) {
  assert(entries.keys.tokens == shape_.prompt_tokens);
  for (const auto& stream : streams_) {
    const StreamShape& shape = stream->shape();
    stream->add_prompt(
        entries.select_heads(shape.first_kv_head, shape.kv_heads),
        window.select_heads(shape.first_kv_head * shape.queries_per_kv_head, shape.query_heads()),
        entries);
  }
}

std::span<const HeadAttention> LayerPolicy::attend(const Entries& entries, QueryRows queries,
                                                   QueryRows look_ahead, const ExactStep* exact) {
  if (look_ahead_ && look_ahead.empty()) {
    throw UserError({"", "stream/query"}, "look_ahead, but there are no look-ahead queries",
                    "current, or a trace with query_ahead");
  }
  select(entries.first_tokens(entries.keys.tokens - 1), look_ahead_ ? look_ahead : queries);
  return attend_selected(entries, queries, exact);
}

void LayerPolicy::select(const Entries& entries, QueryRows scored) {
  for (const auto& stream : streams_) {
    const StreamShape& shape = stream->shape();
    stream->select(entries.select_heads(shape.first_kv_head, shape.kv_heads),
                   scored.subspan(shape.first_query(), shape.query_elements()));
  }
}

std::span<const HeadAttention> LayerPolicy::attend_selected(const Entries& entries,
                                                            QueryRows queries,
                                                            const ExactStep* exact) {
  for (const auto& stream : streams_) {
    const StreamShape& shape = stream->shape();
    stream->attend(
        entries.select_heads(shape.first_kv_head, shape.kv_heads),
        queries.subspan(shape.first_query(), shape.query_elements()),
        std::span(attention_)
            .subspan(static_cast<std::size_t>(shape.first_kv_head * shape.queries_per_kv_head),
                     static_cast<std::size_t>(shape.query_heads())),
        exact);
  }
  return attention_;
}

void LayerPolicy::add_token(const Entries& entries) {
  for (const auto& stream : streams_) {
    const StreamShape& shape = stream->shape();
    stream->add_token(entries.select_heads(shape.first_kv_head, shape.kv_heads));
  }
}

std::vector<EntryFormat> LayerPolicy::formats() const {
  return streams_.front()->formats();
}

AttendedBound LayerPolicy::bound() const {
  return full_attention_ ? AttendedBound{} : streams_.front()->bound();
}

LayerLog LayerPolicy::finish() && {
  LayerLog log;
  log.layer = shape_.layer;
  log.full_attention = full_attention_;
  log.sliding_window = shape_.sliding_window;
  for (const auto& stream : streams_) log.streams.push_back(std::move(*stream).finish());
  return log;
}

}  // namespace kvreplay
