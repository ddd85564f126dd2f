#include "policies/decide/log/access_log.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/hdf5/hdf5_file.hpp"
#include "base/output_file.hpp"
#include "policies/decide/log/log_check.hpp"

namespace kvreplay {
namespace {

constexpr const char* kFormat = "kvaccess";
constexpr std::int64_t kVersion = 2;
constexpr std::int64_t kMaxLayers = 1 << 16;
constexpr const char* kResidualError = "/quality/residual_error";
constexpr const char* kTurns = "turns";

bool skip_nothing(const std::string& /*path*/) {
  return false;
}

/// A layer that stands in the log under several windows has a path for each: the first that of its
/// number alone.
std::vector<std::string> layer_paths(std::span<const std::int64_t> layers) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto before =
        std::count(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(i), layers[i]);
    std::string path =
        "/layer/" + std::string(layers[i] < 10 ? "0" : "") + std::to_string(layers[i]);
    if (before > 0) path += "." + std::to_string(before);
    paths.push_back(std::move(path));
  }
  return paths;
}

/// The one list of a stream's data sets: calls visit(name, vector) for each.
template <typename Log, typename Visit>
void for_stream_data(Log& log, Visit&& visit) {
  visit("event_begin", log.event_begin);
  visit("event_kind", log.event_kind);
  visit("event_group", log.event_group);
  visit("event_other", log.event_other);
  visit("event_token_begin", log.event_token_begin);
  visit("event_tokens", log.event_tokens);
  visit("window_begin", log.window_begin);
  visit("window_asked", log.window_requested);
  visit("asked", log.requested);
  visit("picked", log.picked);
  visit("last_picked", log.last_picked);
  visit("last_tokens", log.last_tokens);
  visit("attended_count", log.attended_count);
  visit("attended", log.attended);
  visit("buffered_tokens", log.buffered_tokens);
  visit("held_bytes", log.held_bytes);
  visit("score_bytes", log.score_bytes);
  visit("score_flops", log.score_flops);
}

/// The attributes of a bound that are absent where they are 0.
template <typename Bound, typename Visit>
void for_rest_of_bound(Bound& bound, Visit&& visit) {
  visit("share_of_prompt", bound.share_of_prompt);
  visit("most_tokens", bound.tokens);
  visit("most_covers_all", bound.covers_all);
}

/// Attributes of a stream that are absent where they are 0.
template <typename Log, typename Visit>
void for_held_parts(Log& log, Visit&& visit) {
  visit("held_fixed_bytes", log.held_fixed_bytes);
  visit("held_prompt_bytes", log.held_prompt_bytes);
}

/// The attributes of a stream that say what its prompt took; each may be absent.
template <typename Work, typename Visit>
void for_prompt_work(Work& work, Visit&& visit) {
  visit("prompt_flops", work.flops);
  visit("prompt_square_flops", work.square_flops);
  visit("prompt_read_bytes", work.bytes);
  visit("prompt_factorise_flops", work.factorise_flops);
  visit("prompt_similarities", work.similarities);
  visit("groups_need_prompt", work.whole_prompt);
}

template <typename Log, typename Visit>
void for_quality_data(Log& quality, Visit&& visit) {
  visit("recall", quality.recall);
  visit("attention_mass", quality.attention_mass);
  visit("best_attention_mass", quality.best_attention_mass);
  visit("output_error", quality.output_error);
}

template <typename T>
void write(Hdf5File& file, const std::string& path, const std::vector<T>& values) {
  file.write_vector(path, values);
}
void write(Hdf5File& file, const std::string& path, const std::vector<EventKind>& kinds) {
  std::vector<std::uint8_t> codes;
  for (const EventKind kind : kinds) codes.push_back(static_cast<std::uint8_t>(kind));
  file.write_vector(path, codes);
}
void write(Hdf5File& file, const std::string& path, const NumberSets& sets) {
  file.write_vector(path + "_begin", sets.begin());
  file.write_vector(path, sets.bytes());
}

template <typename T>
void read(const Hdf5File& file, const std::string& path, std::vector<T>& values) {
  values = file.read_vector<T>(path);
}
void read(const Hdf5File& file, const std::string& path, std::vector<EventKind>& kinds) {
  kinds.clear();
  for (const std::uint8_t code : file.read_vector<std::uint8_t>(path)) {
    if (code > static_cast<std::uint8_t>(EventKind::kReencoded)) {
      throw UserError(file.place(path), "found event kind " + std::to_string(code), "0 to 8");
    }
    kinds.push_back(static_cast<EventKind>(code));
  }
}

/// The begin indices of a ragged array: `items` + 1 of them, rising from 0 to the number of
/// elements.
void check_begins(const Hdf5File& file, const std::string& path,
                  const std::vector<std::int64_t>& begins, std::int64_t items,
                  std::size_t elements) {
  const bool rises = std::is_sorted(begins.begin(), begins.end());
  if (std::ssize(begins) != items + 1 || begins.front() != 0 || !rises ||
      begins.back() != static_cast<std::int64_t>(elements)) {
    throw UserError(
        file.place(path), "does not fit the array that it divides",
        std::to_string(items + 1) + " rising numbers from 0 to " + std::to_string(elements));
  }
}

void read(const Hdf5File& file, const std::string& path, NumberSets& sets) {
  std::vector<std::int64_t> begin = file.read_vector<std::int64_t>(path + "_begin");
  std::vector<std::uint8_t> bytes = file.read_vector<std::uint8_t>(path);
  check_begins(file, path + "_begin", begin, std::max<std::int64_t>(std::ssize(begin) - 1, 0),
               bytes.size());
  sets = NumberSets(std::move(begin), std::move(bytes));
  if (!sets.valid()) {
    throw UserError(file.place(path), "holds bytes that are no runs of numbers",
                    "pairs of variable-length integers (docs/access-log.md)");
  }
}

std::string to_text(const std::vector<EntryFormat>& formats) {
  nlohmann::json list = nlohmann::json::array();
  for (const EntryFormat& format : formats) {
    nlohmann::json& listed = list.emplace_back(
        nlohmann::json{{"name", format.name},
                       {"bits_per_element", format.bits_per_element},
                       {"overhead_bits_per_head", format.overhead_bits_per_head}});
    if (format.newest) listed["newest"] = true;
  }
  return list.dump();
}

std::vector<EntryFormat> formats_from(const std::string& text, const SourceLocation& place) {
  std::vector<EntryFormat> formats;
  try {
    for (const nlohmann::json& format : nlohmann::json::parse(text)) {
      formats.push_back({format.at("name"), format.at("bits_per_element"),
                         format.at("overhead_bits_per_head"), format.value("newest", false)});
    }
  } catch (const nlohmann::json::exception&) {
    throw UserError(place, "attribute formats is no list of formats",
                    "JSON as written by kvreplay");
  }
  return formats;
}

void check_size(const Hdf5File& file, const std::string& path, std::size_t found,
                std::int64_t expected) {
  if (static_cast<std::int64_t>(found) != expected) {
    throw UserError(file.place(path), "found " + std::to_string(found) + " values",
                    std::to_string(expected));
  }
}

std::int64_t full_attention_layers_of(const std::string& decide_config,
                                      const SourceLocation& place) {
  try {
    return nlohmann::json::parse(decide_config).at("stream").at("dense_layers").get<std::int64_t>();
  } catch (const nlohmann::json::exception&) {
    throw UserError(place, "attribute decide_config names no dense_layers",
                    "JSON of the parts, with stream.dense_layers");
  }
}

void check_stream(const Hdf5File& file, const std::string& path, const StreamLog& log,
                  std::int64_t steps) {
  const auto begins = [&](const char* name, const std::vector<std::int64_t>& values,
                          std::int64_t items, std::size_t elements) {
    check_begins(file, path + name, values, items, elements);
  };
  const auto events = std::ssize(log.event_kind);
  begins("event_begin", log.event_begin, steps + 1, log.event_kind.size());
  begins("event_token_begin", log.event_token_begin, events, log.event_tokens.size());
  begins("window_begin", log.window_begin,
         std::max<std::int64_t>(std::ssize(log.window_begin) - 1, 0), log.window_requested.size());
  const auto size = [&](const char* name, std::size_t found, std::int64_t expected) {
    check_size(file, path + name, found, expected);
  };
  const auto sets = [&](const char* name, const NumberSets& found, std::int64_t expected) {
    begins(name, found.begin(), expected, found.bytes().size());
  };
  sets("asked_begin", log.requested, steps);
  sets("picked_begin", log.picked, steps * log.rows);
  if (log.attended.size() > 0) sets("attended_begin", log.attended, steps * log.query_heads);
  size("event_group", log.event_group.size(), events);
  size("event_other", log.event_other.size(), events);
  size("last_picked", log.last_picked.size(), steps * log.rows);
  size("last_tokens", log.last_tokens.size(), steps * log.rows);
  size("attended_count", log.attended_count.size(), steps * log.query_heads);
  size("buffered_tokens", log.buffered_tokens.size(), steps);
  size("held_bytes", log.held_bytes.size(), steps);
  size("score_bytes", log.score_bytes.size(), steps);
  size("score_flops", log.score_flops.size(), steps);
}

void write_layer(Hdf5File& file, const std::string& path, const LayerLog& layer,
                 const AccessLog& log) {
  file.create_group(path);
  file.write_integer_attribute(path, "dense", layer.full_attention ? 1 : 0);
  if (layer.sliding_window > 0) {
    file.write_integer_attribute(path, "sliding_window", layer.sliding_window);
  }
  file.write_integer_attribute(path, "streams", std::ssize(layer.streams));
  for (std::size_t i = 0; i < layer.streams.size(); ++i) {
    const StreamLog& stream = layer.streams[i];
    const std::string folder = path + "/stream/" + std::to_string(i);
    file.create_group(folder);
    file.write_integer_attribute(folder, "first_kv_head", stream.first_kv_head);
    file.write_integer_attribute(folder, "kv_heads", stream.kv_heads);
    file.write_integer_attribute(folder, "query_heads", stream.query_heads);
    file.write_integer_attribute(folder, "rows", stream.rows);
    if (stream.out_of_range > 0) {
      file.write_integer_attribute(folder, "out_of_range", stream.out_of_range);
    }
    if (stream.coarse_channels > 0) {
      file.write_integer_attribute(folder, "coarse_channels", stream.coarse_channels);
    }
    const auto write_unless_zero = [&](const char* name, const auto& value) {
      if (value != 0) file.write_integer_attribute(folder, name, std::int64_t{value});
    };
    for_held_parts(stream, write_unless_zero);
    for_prompt_work(stream.prompt_work, write_unless_zero);
    for_stream_data(stream, [&](const char* name, const auto& values) {
      write(file, folder + "/" + name, values);
    });
  }
  const std::int64_t shape[] = {log.steps, log.query_heads};
  for_quality_data(layer.quality, [&](const char* name, const std::vector<float>& values) {
    file.write_array(path + "/quality/" + name, shape, values);
  });
  if (!layer.quality.residual_error.empty()) {
    file.write_vector(path + kResidualError, layer.quality.residual_error);
  }
}

LayerLog read_layer(const Hdf5File& file, const std::string& path, std::int64_t number,
                    const AccessLog& log) {
  LayerLog layer;
  layer.layer = number;
  layer.full_attention = file.integer_attribute(path, "dense") != 0;
  if (file.has_attribute(path, "sliding_window")) {
    layer.sliding_window = file.integer_attribute(path, "sliding_window");
  }
  const std::int64_t streams = file.integer_attribute(path, "streams");
  if (streams < 0 || streams > log.kv_heads) {
    throw UserError(file.place(path), "found " + std::to_string(streams) + " streams",
                    "0 to " + std::to_string(log.kv_heads));
  }
  for (std::int64_t i = 0; i < streams; ++i) {
    const std::string folder = path + "/stream/" + std::to_string(i);
    StreamLog stream;
    stream.first_kv_head = file.integer_attribute(folder, "first_kv_head");
    stream.kv_heads = file.integer_attribute(folder, "kv_heads");
    stream.query_heads = file.integer_attribute(folder, "query_heads");
    stream.rows = file.integer_attribute(folder, "rows");
    for_stream_data(
        stream, [&](const char* name, auto& values) { read(file, folder + "/" + name, values); });
    if (file.has_attribute(folder, "out_of_range")) {
      stream.out_of_range = file.integer_attribute(folder, "out_of_range");
    }
    if (file.has_attribute(folder, "coarse_channels")) {
      stream.coarse_channels = file.integer_attribute(folder, "coarse_channels");
    }
    const auto read_where_given = [&]<typename Number>(const char* name, Number& value) {
      if (!file.has_attribute(folder, name)) return;
      const std::int64_t found = file.integer_attribute(folder, name);
      if (found < 0) {
        throw UserError(file.place(folder),
                        std::string("found ") + name + " " + std::to_string(found), "from 0");
      }
      value = static_cast<Number>(found);
    };
    for_held_parts(stream, read_where_given);
    for_prompt_work(stream.prompt_work, read_where_given);
    // The sizes of other arrays follow from these.
    if (stream.query_heads < 1 || stream.query_heads > log.query_heads || stream.rows < 0 ||
        stream.rows > stream.query_heads) {
      throw UserError(file.place(folder),
                      "found " + std::to_string(stream.rows) + " rows of " +
                          std::to_string(stream.query_heads) + " query heads",
                      "at most a row per query head, of 1 to " + std::to_string(log.query_heads));
    }
    check_stream(file, folder + "/", stream, log.steps);
    check_stream_values(stream, log, file.place(folder));
    layer.streams.push_back(std::move(stream));
  }
  for_quality_data(layer.quality, [&](const char* name, std::vector<float>& values) {
    const std::string data = path + "/quality/" + name;
    values = file.read_vector<float>(data);
    check_size(file, data, values.size(), log.steps * log.query_heads);
  });
  if (const std::string data = path + kResidualError; file.exists(data)) {
    layer.quality.residual_error = file.read_vector<float>(data);
    check_size(file, data, layer.quality.residual_error.size(), log.steps);
  }
  return layer;
}

}  // namespace

void StreamLog::add(const GroupEvent& event) {
  event_kind.push_back(event.kind);
  event_group.push_back(event.group);
  event_other.push_back(event.other);
  event_tokens.insert(event_tokens.end(), event.tokens.begin(), event.tokens.end());
  event_token_begin.push_back(std::ssize(event_tokens));
}

GroupEvent StreamLog::event(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  const auto begin = static_cast<std::size_t>(event_token_begin[i]);
  const auto end = static_cast<std::size_t>(event_token_begin[i + 1]);
  return {event_kind[i], event_group[i], event_other[i],
          std::span(event_tokens).subspan(begin, end - begin)};
}

void write_access_log(const AccessLog& log, const std::string& path) {
  OutputFile output(path);
  Hdf5File file = Hdf5File::create(output.temporary_path(), path);
  file.write_text_attribute("/", "format", kFormat);
  file.write_integer_attribute("/", "format_version", kVersion);
  file.write_text_attribute("/", "trace_sha256", log.trace_hash);
  file.write_text_attribute("/", "system", log.system);
  file.write_text_attribute("/", "decide_config", log.decide_config);
  file.write_text_attribute("/", "formats", to_text(log.formats));
  file.write_integer_attribute("/", "share_of_context", log.bound.share_of_context ? 1 : 0);
  for_rest_of_bound(log.bound, [&](const char* name, const auto& value) {
    if (value != 0) file.write_integer_attribute("/", name, std::int64_t{value});
  });
  file.write_integer_attribute("/", "query_heads", log.query_heads);
  file.write_integer_attribute("/", "kv_heads", log.kv_heads);
  file.write_integer_attribute("/", "head_dim", log.head_dim);
  file.write_integer_attribute("/", "prompt_tokens", log.prompt_tokens);
  file.write_integer_attribute("/", "steps", log.steps);
  if (!log.turns.empty()) {
    std::vector<std::int64_t> turns;
    for (const TurnSteps& turn : log.turns) {
      turns.insert(turns.end(), {turn.begin, turn.generated_begin, turn.end});
    }
    file.write_integers_attribute("/", kTurns, turns);
  }
  std::vector<std::int64_t> layers;
  for (const LayerLog& layer : log.layers) layers.push_back(layer.layer);
  file.write_integers_attribute("/", "layers", layers);
  const std::vector<std::string> paths = layer_paths(layers);
  for (std::size_t i = 0; i < paths.size(); ++i) write_layer(file, paths[i], log.layers[i], log);
  file.write_content_sha256(skip_nothing);
  file.close();
  output.commit();
}

AccessLog read_access_log(const std::string& path) {
  const Hdf5File file = Hdf5File::open(path);
  const std::string format = file.text_attribute("/", "format");
  const std::int64_t version = file.integer_attribute("/", "format_version");
  if (format != kFormat || version != kVersion) {
    throw UserError(file.place("/"), "found format " + format + " " + std::to_string(version),
                    std::string(kFormat) + " " + std::to_string(kVersion));
  }
  AccessLog log;
  log.trace_hash = file.text_attribute("/", "trace_sha256");
  log.system = file.text_attribute("/", "system");
  log.decide_config = file.text_attribute("/", "decide_config");
  log.full_attention_layers = full_attention_layers_of(log.decide_config, file.place("/"));
  log.formats = formats_from(file.text_attribute("/", "formats"), file.place("/"));
  log.bound.share_of_context = file.integer_attribute("/", "share_of_context") != 0;
  for_rest_of_bound(log.bound, [&]<typename Number>(const char* name, Number& value) {
    if (file.has_attribute("/", name)) {
      value = static_cast<Number>(std::max<std::int64_t>(0, file.integer_attribute("/", name)));
    }
  });
  log.query_heads = file.integer_attribute("/", "query_heads");
  log.kv_heads = file.integer_attribute("/", "kv_heads");
  log.head_dim = file.integer_attribute("/", "head_dim");
  log.prompt_tokens = file.integer_attribute("/", "prompt_tokens");
  log.steps = file.integer_attribute("/", "steps");
  check_log_shape(log, file.place("/"));
  if (file.has_attribute("/", kTurns)) {
    const std::vector<std::int64_t> turns = file.integers_attribute("/", kTurns);
    const bool whole = !turns.empty() && turns.size() % 3 == 0 && turns[0] == 0 && turns[1] == 0;
    if (!whole || !std::is_sorted(turns.begin(), turns.end()) || turns.back() > log.steps) {
      throw UserError(file.place("/"), "attribute turns is no list of turns",
                      "ascending steps, three per turn, up to " + std::to_string(log.steps));
    }
    for (std::size_t i = 0; i < turns.size(); i += 3) {
      log.turns.push_back({turns[i], turns[i + 1], turns[i + 2]});
    }
  }
  const std::vector<std::int64_t> layers = file.integers_attribute("/", "layers");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] > kMaxLayers || (i > 0 && layers[i] < layers[i - 1])) {
      throw UserError(file.place("/"), "attribute layers names layer " + std::to_string(layers[i]),
                      "ascending numbers from 0");
    }
  }
  const std::vector<std::string> paths = layer_paths(layers);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    log.layers.push_back(read_layer(file, paths[i], layers[i], log));
    const LayerLog& read = log.layers.back();
    if (!read.full_attention && read.streams.empty()) {
      throw UserError(file.place(paths[i]), "has no stream", "one, or one per KV head");
    }
  }
  // Last: what is wrong above has a more telling message.
  file.check_content_sha256(skip_nothing);
  return log;
}

}  // namespace kvreplay
