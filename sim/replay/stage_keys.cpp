#include "sim/replay/stage_keys.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/argument_json.hpp"
#include "base/hash.hpp"

namespace kvreplay {

using nlohmann::json;

namespace {

/// Hashes of the files that a part's arguments name, relative to the config that names them.
void add_files(const Arguments& arguments, json& hashes) {
  for (const auto& [name, argument] : arguments.all()) {
    const auto* text = std::get_if<std::string>(&argument.value);
    if (name != "file" || text == nullptr) continue;
    const std::filesystem::path folder =
        std::filesystem::path(arguments.place(name).file).parent_path();
    hashes.push_back(sha256_file((folder / *text).string()));
  }
}

}  // namespace

std::string decide_key(const std::string& trace_sha256, const DecideSpec& spec, std::uint64_t seed,
                       std::int64_t steps, bool record_tokens,
                       std::span<const WindowedLayer> layers, const HeadShape& model_heads) {
  json key{{"sources", kDecideSources},
           {"trace", trace_sha256},
           {"decide", spec.resolved()},
           {"seed", seed},
           {"steps", steps},
           {"tokens", record_tokens},
           {"model", {model_heads.kv_heads, model_heads.head_dim}},
           {"files", json::array()}};
  for (const WindowedLayer& layer : layers) {
    key["layers"].push_back({layer.index, layer.sliding_window});
  }
  DecideSpec::for_parts(spec,
                        [&](const auto& chosen) { add_files(chosen.arguments(), key["files"]); });
  return sha256_text(key.dump());
}

std::string place_key(const std::string& decide_key, const PlaceSpec& spec,
                      std::span<const KvShape> kinds) {
  json key{{"sources", kPlaceSources},
           {"log", decide_key},
           {"place", spec.resolved()},
           {"shapes", json::array()}};
  for (const KvShape& kind : kinds) {
    json shape{kind.layers, kind.query_heads, kind.kv_heads, kind.head_dim, kind.one_vector};
    if (kind.sliding_window) shape.push_back(*kind.sliding_window);
    key["shapes"].push_back(std::move(shape));
  }
  return sha256_text(key.dump());
}

std::string time_key(const std::string& place_key, const ModelSpec& model,
                     const PlatformSpec& platform, const DeviceSpec& device,
                     const PartConfig<Pipeline>& pipeline, const TimeOptions& options) {
  const json key{
      {"sources", kTimeSources},
      {"plan", place_key},
      {"model", to_json(model.arguments)},
      {"by_layer", model.by_layer},
      {"platform", json::parse(platform.resolved())},
      {"device", part_json(device.device.name(), device.device.arguments())},
      {"pipeline", part_json(pipeline.name(), pipeline.arguments())},
      {"options",
       {options.batch, options.timed_steps, options.warm_up_steps, options.seed,
        options.prefill_chunk_tokens, options.after_prefill, options.shared_prefix, options.idle_ns,
        static_cast<int>(options.idle_drops), options.turns_read_selected, options.sustained_ns}}};
  return sha256_text(key.dump());
}

}  // namespace kvreplay
