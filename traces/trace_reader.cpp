#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/hdf5/hdf5_file.hpp"
#include "base/mapped_file.hpp"
#include "traces/trace.hpp"
#include "traces/trace_paths.hpp"

namespace kvreplay {
namespace {

/// Bounds that keep every product of extents within 64 bits.
constexpr std::int64_t kMaxHeads = 1 << 12;
constexpr std::int64_t kMaxDim = 1 << 12;
constexpr std::int64_t kMaxLayers = 1 << 16;
constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 31;

/// A factor on q . k outside these bounds makes attention uniform or a maximum: a wrong unit.
constexpr double kMinScale = 1e-6;
constexpr double kMaxScale = 1e3;

/// Loading a layer checks this many rows of each head, evenly spaced.
constexpr std::int64_t kSampledRows = 256;
/// Number of values that verify() holds at once.
constexpr std::int64_t kPieceValues = 1 << 20;

/// Keeps a TraceLayer's views alive. Its destruction releases the memory of what was mapped, so
/// that a replay of a trace larger than memory holds only the layers in use.
struct LayerStorage {
  explicit LayerStorage(std::shared_ptr<const MappedFile> file) : mapping(std::move(file)) {}
  ~LayerStorage() {
    for (const auto& [offset, bytes] : mapped) mapping->release(offset, bytes);
  }
  LayerStorage(const LayerStorage&) = delete;
  LayerStorage& operator=(const LayerStorage&) = delete;

  std::shared_ptr<const MappedFile> mapping;
  std::vector<std::pair<std::int64_t, std::int64_t>> mapped;  ///< offset and bytes of each view
  std::vector<std::vector<Half>> buffers;
};

/// A data set of 16-bit vectors: [heads, rows, dim], or [rows, dim] with heads == 1.
struct Vectors {
  std::string path;
  bool flat = false;  ///< the file's shape has no heads
  std::int64_t heads = 0;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  /// Where the data can be mapped: contiguous, whatever the alignment.
  std::optional<std::int64_t> offset;

  [[nodiscard]] std::int64_t count() const { return heads * rows * dim; }
};

struct Layer {
  Vectors keys;
  Vectors values;
  Vectors queries;
  std::optional<Vectors> queries_ahead;
  std::optional<Vectors> attention_input;
  std::int64_t query_start = 0;
  bool output_weights = false;

  [[nodiscard]] std::vector<const Vectors*> all() const {
    std::vector<const Vectors*> all = {&keys, &values, &queries};
    if (queries_ahead) all.push_back(&*queries_ahead);
    if (attention_input) all.push_back(&*attention_input);
    return all;
  }
};

std::string shape_text(std::span<const std::int64_t> shape) {
  std::vector<std::string> extents;
  for (const std::int64_t extent : shape) extents.push_back(std::to_string(extent));
  return "[" + join(extents) + "]";
}

std::string reals_text(std::span<const double> values) {
  std::ostringstream text;
  for (const double value : values) text << (text.tellp() > 0 ? ", " : "") << value;
  return "[" + text.str() + "]";
}

/// Reads root attributes; a wrong type or range is a UserError.
class RootAttributes {
 public:
  explicit RootAttributes(const Hdf5File& hdf5) : hdf5_(hdf5) {}

  [[nodiscard]] std::string text(const std::string& name) const {
    return hdf5_.text_attribute("/", name);
  }
  [[nodiscard]] std::string choice(const std::string& name,
                                   const std::vector<std::string>& allowed) const {
    std::string found = text(name);
    if (std::find(allowed.begin(), allowed.end(), found) == allowed.end()) {
      throw refuse(name, "'" + found + "'", join(allowed));
    }
    return found;
  }
  /// 64 hexadecimal digits, or "" for unknown.
  [[nodiscard]] std::string sha256(const std::string& name) const {
    std::string found = text(name);
    const bool digits = std::all_of(found.begin(), found.end(),
                                    [](unsigned char c) { return std::isxdigit(c) != 0; });
    if (!digits || (found.size() != 64 && !found.empty())) {
      throw refuse(name, "'" + found + "'", "64 hexadecimal digits, or nothing");
    }
    return found;
  }
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t min,
                                     std::int64_t max) const {
    const std::int64_t found = hdf5_.integer_attribute("/", name);
    if (found < min || found > max) {
      throw refuse(name, std::to_string(found),
                   "integer from " + std::to_string(min) + " to " + std::to_string(max));
    }
    return found;
  }
  [[nodiscard]] std::int64_t integer(const std::string& name) const {
    return hdf5_.integer_attribute("/", name);
  }
  [[nodiscard]] double positive(const std::string& name) const {
    const double found = hdf5_.real_attribute("/", name);
    if (!std::isfinite(found) || found <= 0) {
      throw refuse(name, std::to_string(found), "finite real above 0");
    }
    return found;
  }
  [[nodiscard]] double real(const std::string& name, double min, double max) const {
    const double found = hdf5_.real_attribute("/", name);
    if (!(found >= min && found <= max)) {
      std::ostringstream value;
      std::ostringstream range;
      value << found;
      range << "real from " << min << " to " << max;
      throw refuse(name, value.str(), range.str());
    }
    return found;
  }
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& name) const {
    return hdf5_.integers_attribute("/", name);
  }
  [[nodiscard]] std::vector<double> reals(const std::string& name) const {
    return hdf5_.reals_attribute("/", name);
  }
  [[nodiscard]] UserError refuse(const std::string& name, const std::string& found,
                                 const std::string& allowed) const {
    return {hdf5_.place("/"), "attribute '" + name + "' is " + found, allowed};
  }

 private:
  const Hdf5File& hdf5_;
};

/// Those of a conversation, checked against the trace's tokens and prompt_tokens.
std::vector<Segment> read_segments(const RootAttributes& root, const TraceInfo& info) {
  std::vector<Segment> segments;
  const std::string roles = root.text(kSegmentRolesName);
  const std::vector<std::string> allowed(kSegmentRoles.begin(), kSegmentRoles.end());
  std::istringstream words(roles);
  for (std::string role; words >> role;) {
    if (std::find(allowed.begin(), allowed.end(), role) == allowed.end()) {
      throw root.refuse(kSegmentRolesName, "'" + roles + "'",
                        join(allowed) + ", one per segment, separated by spaces");
    }
    segments.push_back({role});
  }
  const std::string each = " for each of " + std::to_string(segments.size()) + " segment_roles";
  const std::vector<std::int64_t> begin = root.integers(kSegmentBegin);
  bool increasing = begin.size() == segments.size() && !begin.empty() && begin[0] == 0;
  for (std::size_t i = 1; i < begin.size(); ++i) {
    increasing = increasing && begin[i] > begin[i - 1] && begin[i] < info.tokens;
  }
  if (!increasing) {
    throw root.refuse(kSegmentBegin, shape_text(begin),
                      "increasing integers from 0 to " + std::to_string(info.tokens - 1) +
                          ", the first 0, one" + each);
  }
  const std::vector<std::int64_t> generated = root.integers(kSegmentGenerated);
  const bool flags = generated.size() == segments.size() &&
                     std::all_of(generated.begin(), generated.end(),
                                 [](std::int64_t flag) { return flag == 0 || flag == 1; });
  if (!flags || generated.front() != 0 || generated.back() != 1) {
    throw root.refuse(kSegmentGenerated, shape_text(generated),
                      "0 or 1" + each + ", the first 0 and the last 1");
  }
  for (std::size_t i = 0; i < segments.size(); ++i) {
    segments[i].begin = begin[i];
    segments[i].generated = generated[i] == 1;
  }
  const auto first = std::find(generated.begin(), generated.end(), 1) - generated.begin();
  if (begin[static_cast<std::size_t>(first)] != info.prompt_tokens) {
    throw root.refuse(
        kSegmentBegin, shape_text(begin),
        "the first generated segment at prompt_tokens = " + std::to_string(info.prompt_tokens));
  }
  return segments;
}

TraceInfo read_info(const Hdf5File& hdf5) {
  const RootAttributes root(hdf5);
  if (!hdf5.has_attribute("/", "format")) {
    throw UserError(hdf5.place("/"), "is no trace: attribute 'format' is missing", kTraceFormat);
  }
  (void)root.choice("format", {kTraceFormat});
  const bool conversation = root.integer("format_version", kTraceFormatVersion,
                                         kConversationFormatVersion) == kConversationFormatVersion;
  if (conversation != hdf5.has_attribute("/", kSegmentRolesName)) {
    throw root.refuse("format_version",
                      conversation ? "2 without segment_roles" : "1 with segment_roles",
                      "2 for a trace with segments, 1 for any other");
  }
  if (!hdf5.has_attribute("/", "complete")) {
    throw UserError(hdf5.place("/"),
                    "attribute 'complete' is missing: the recording did not reach its end",
                    "complete = 1");
  }
  (void)root.integer("complete", 1, 1);
  // A writer that says these means another softmax than the one that readers compute.
  for (const char* const name : {"softcap", "attn_logit_softcapping", "sinks", "s_aux"}) {
    if (!hdf5.has_attribute("/", name)) continue;
    throw root.refuse(name, "there",
                      "a recording of plain softmax attention: learned sinks and soft caps on "
                      "scores are not computed");
  }

  TraceInfo info;
  info.model = root.text("model");
  info.model_revision = root.text("model_revision");
  info.weights_sha256 = root.sha256("weights_sha256");
  info.layers = root.integer("layers", 1, kMaxLayers);
  info.query_heads = root.integer("query_heads", 1, kMaxHeads);
  info.kv_heads = root.integer("kv_heads", 1, kMaxHeads);
  if (info.query_heads % info.kv_heads != 0) {
    throw root.refuse("query_heads", std::to_string(info.query_heads),
                      "a multiple of kv_heads = " + std::to_string(info.kv_heads));
  }
  info.head_dim = root.integer("head_dim", 1, kMaxDim);
  info.hidden_size = root.integer("hidden_size", 1, kMaxHidden);

  info.recorded_layers = root.integers("recorded_layers");
  std::int64_t previous = -1;
  for (const std::int64_t layer : info.recorded_layers) {
    if (layer <= previous || layer >= info.layers) {
      throw root.refuse("recorded_layers", shape_text(info.recorded_layers),
                        "increasing integers from 0 to " + std::to_string(info.layers - 1));
    }
    previous = layer;
  }
  if (info.recorded_layers.empty()) {
    throw root.refuse("recorded_layers", "empty", "at least one layer");
  }

  info.tokens = root.integer("tokens", 2, kMaxTokens);
  info.prompt_tokens = root.integer("prompt_tokens", 1, info.tokens - 1);
  info.dtype = root.choice("dtype", {"f16", "bf16"});
  info.key_state = root.choice("key_state", {"post_rope", "pre_rope"});
  info.rope_theta = root.positive("rope_theta");
  info.rope_pairs = root.choice("rope_pairs", {"half", "interleaved"});
  info.rope_scaling = root.text("rope_scaling");
  if (hdf5.has_attribute("/", "layer_rope_theta")) {
    info.layer_rope_theta = root.reals("layer_rope_theta");
    if (info.layer_rope_theta.size() != info.recorded_layers.size() ||
        !std::all_of(info.layer_rope_theta.begin(), info.layer_rope_theta.end(),
                     [](double theta) { return std::isfinite(theta) && theta >= 0; })) {
      throw root.refuse("layer_rope_theta", reals_text(info.layer_rope_theta),
                        "one finite real from 0 for each of " +
                            std::to_string(info.recorded_layers.size()) + " recorded layers");
    }
  }
  if (info.layer_rope_theta.empty() ? info.rope_scaling == "by layer"
                                    : info.rope_scaling == "none") {
    throw root.refuse("rope_scaling", "'" + info.rope_scaling + "'",
                      "by layer with attribute 'layer_rope_theta', none without it, or what was "
                      "done to the frequencies");
  }
  info.softmax_scale = root.real("softmax_scale", kMinScale, kMaxScale);

  info.sliding_window = root.integers("sliding_window");
  if (info.sliding_window.size() != info.recorded_layers.size() ||
      std::any_of(info.sliding_window.begin(), info.sliding_window.end(),
                  [](std::int64_t window) { return window < 0; })) {
    throw root.refuse("sliding_window", shape_text(info.sliding_window),
                      "one integer from 0 for each of " +
                          std::to_string(info.recorded_layers.size()) + " recorded layers");
  }

  info.tokenizer = root.text("tokenizer");
  info.text_source = root.text("text_source");
  info.text_sha256 = root.sha256("text_sha256");
  if (conversation) info.segments = read_segments(root, info);
  if (hdf5.has_attribute("/", "text_mode")) {
    info.text_mode = root.choice("text_mode", {"teacher_forced", "greedy", "sampled"});
  }
  info.tool = root.text("tool");
  info.tool_version = root.text("tool_version");
  info.seed = root.integer("seed");
  info.created_utc = root.text("created_utc");
  if (hdf5.has_attribute("/", "synthetic")) info.synthetic = root.integer("synthetic", 0, 1) == 1;
  return info;
}

/// Checks type, shape and extent in the file of a data set against the attributes.
Hdf5Dataset check_dataset(const Hdf5File& hdf5, const std::string& path, Hdf5Type type,
                          std::span<const std::int64_t> shape, std::int64_t element_bytes,
                          std::int64_t file_bytes) {
  const SourceLocation place = hdf5.place(path);
  Hdf5Dataset found = hdf5.dataset(path);
  if (found.type != type) {
    throw UserError(place,
                    "holds " + std::string(found.type ? to_text(*found.type) : "another type"),
                    to_text(type));
  }
  if (!std::equal(found.shape.begin(), found.shape.end(), shape.begin(), shape.end())) {
    throw UserError(place, "has shape " + shape_text(found.shape), shape_text(shape));
  }
  if (!found.contiguous) return found;
  const std::int64_t bytes = found.count() * element_bytes;
  if (!found.offset || found.stored_bytes != bytes) {
    throw UserError(place, "was never written in this file", std::to_string(bytes) + " bytes");
  }
  if (*found.offset > file_bytes - bytes) {
    throw UserError(place,
                    "ends at byte " + std::to_string(*found.offset + bytes) +
                        ", the truncated file at " + std::to_string(file_bytes),
                    "a whole file");
  }
  return found;
}

bool is_finite(Hdf5Type type, std::uint16_t bits) {
  const unsigned exponent = type == Hdf5Type::kHalf ? 0x7c00u : 0x7f80u;
  return (bits & exponent) != exponent;
}

}  // namespace

struct TraceReader::State {
  explicit State(std::string path)
      : file(std::move(path)),
        hdf5(Hdf5File::open(file)),
        info(read_info(hdf5)),
        mapping(std::make_shared<MappedFile>(file, "a readable file")),
        type(info.dtype == "f16" ? Hdf5Type::kHalf : Hdf5Type::kUint16) {
    check_tokens();
    for (const std::int64_t layer : info.recorded_layers) layers.push_back(check_layer(layer));
    hdf5.check_content_sha256(holds_vectors);
    for (const Layer& layer : layers) {
      for (const Vectors* vectors : layer.all()) {
        if (vectors->offset) {
          mapping->name_part(*vectors->offset, 2 * vectors->count(), vectors->path);
        }
      }
    }
  }

  void check_tokens() const {
    const std::int64_t shape[] = {info.tokens};
    check_dataset(hdf5, token_path("id"), Hdf5Type::kInt32, shape, 4, mapping->size());
    for (const char* name : kTokenStatistics) {
      check_dataset(hdf5, token_path(name), Hdf5Type::kFloat, shape, 4, mapping->size());
    }
  }

  [[nodiscard]] Vectors check_vectors(const std::string& path, std::int64_t heads,
                                      std::int64_t rows) const {
    const std::int64_t shape[] = {heads, rows, info.head_dim};
    const Hdf5Dataset found = check_dataset(hdf5, path, type, shape, 2, mapping->size());
    return {path, false, heads, rows, info.head_dim, found.offset};
  }

  [[nodiscard]] std::int64_t check_query_start(const std::string& path) const {
    const std::int64_t start = hdf5.integer_attribute(path, "query_start");
    if (start < 0 || start > info.prompt_tokens) {
      throw UserError(hdf5.place(path), "attribute 'query_start' is " + std::to_string(start),
                      "integer from 0 to prompt_tokens = " + std::to_string(info.prompt_tokens));
    }
    return start;
  }

  [[nodiscard]] Layer check_layer(std::int64_t number) const {
    Layer layer;
    layer.keys = check_vectors(layer_path(number, "key"), info.kv_heads, info.tokens);
    layer.values = check_vectors(layer_path(number, "value"), info.kv_heads, info.tokens);
    const std::string query = layer_path(number, "query");
    layer.query_start = check_query_start(query);
    const std::int64_t queries = info.tokens - layer.query_start;
    layer.queries = check_vectors(query, info.query_heads, queries);
    const std::string ahead = layer_path(number, "query_ahead");
    if (hdf5.exists(ahead)) {
      if (check_query_start(ahead) != layer.query_start) {
        throw UserError(hdf5.place(ahead), "attribute 'query_start' differs from that of 'query'",
                        std::to_string(layer.query_start));
      }
      layer.queries_ahead = check_vectors(ahead, info.query_heads, queries);
    }
    const std::string input = layer_path(number, "attention_input");
    if (hdf5.exists(input)) {
      const std::int64_t shape[] = {queries, info.hidden_size};
      const Hdf5Dataset found = check_dataset(hdf5, input, type, shape, 2, mapping->size());
      layer.attention_input = Vectors{input, true, 1, queries, info.hidden_size, found.offset};
    }
    const std::string sketch = layer_path(number, kOutputSketch);
    const std::string norm = layer_path(number, kResidualNorm);
    layer.output_weights = hdf5.exists(sketch) || hdf5.exists(norm);
    if (layer.output_weights) {
      const std::vector<std::int64_t> found = hdf5.dataset(sketch).shape;
      const std::int64_t rows = found.empty() ? 1 : std::clamp<std::int64_t>(found[0], 1, kMaxDim);
      const std::int64_t shape[] = {rows, info.query_heads * info.head_dim};
      check_dataset(hdf5, sketch, Hdf5Type::kFloat, shape, 4, mapping->size());
      check_dataset(hdf5, norm, Hdf5Type::kFloat, std::span(&queries, 1), 4, mapping->size());
    }
    return layer;
  }

  [[nodiscard]] UserError not_finite(const Vectors& vectors, std::int64_t index) const {
    const std::int64_t row = index / vectors.dim;
    const std::int64_t position[] = {row / vectors.rows, row % vectors.rows, index % vectors.dim};
    return {hdf5.place(vectors.path),
            "not a number or infinite at " +
                shape_text(std::span(position).subspan(vectors.flat ? 1 : 0)),
            "finite values"};
  }

  /// Returns `count` rows of a head from `row` on, as stored.
  template <typename T>
  void read_rows(const Vectors& vectors, std::int64_t head, std::int64_t row, std::int64_t count,
                 std::span<T> bits) const {
    const std::int64_t start[] = {head, row, 0};
    const std::int64_t extent[] = {1, count, vectors.dim};
    const std::size_t skip = vectors.flat ? 1 : 0;
    hdf5.read_box<T>(vectors.path, std::span(start).subspan(skip), std::span(extent).subspan(skip),
                     bits);
  }

  /// All values: in the file's mapping where they lie there as f16, otherwise in a buffer of
  /// `storage`.
  [[nodiscard]] HalfTensor load(const Vectors& vectors, LayerStorage& storage) const {
    HalfTensor tensor{nullptr, vectors.heads, vectors.rows, vectors.dim,
                      vectors.rows * vectors.dim};
    const std::byte* mapped = vectors.offset ? mapping->at(*vectors.offset) : nullptr;
    const bool aligned = reinterpret_cast<std::uintptr_t>(mapped) % alignof(Half) == 0;
    if (type == Hdf5Type::kHalf && mapped != nullptr && aligned) {
      tensor.data = reinterpret_cast<const Half*>(mapped);
      storage.mapped.emplace_back(*vectors.offset, 2 * vectors.count());
    } else {
      std::vector<Half>& buffer = storage.buffers.emplace_back(vectors.count());
      if (type == Hdf5Type::kHalf && mapped != nullptr) {
        std::memcpy(buffer.data(), mapped, buffer.size() * sizeof(Half));
      } else {
        fill(vectors, buffer);
      }
      tensor.data = buffer.data();
    }
    sample(vectors, tensor);
    return tensor;
  }

  void fill(const Vectors& vectors, std::span<Half> buffer) const {
    const auto head_values = static_cast<std::size_t>(vectors.rows * vectors.dim);
    std::vector<std::uint16_t> brain(type == Hdf5Type::kHalf ? 0 : head_values);
    for (std::int64_t head = 0; head < vectors.heads; ++head) {
      const std::size_t begin = static_cast<std::size_t>(head) * head_values;
      const std::span<Half> halves = buffer.subspan(begin, head_values);
      if (type == Hdf5Type::kHalf) {
        read_rows(vectors, head, 0, vectors.rows, halves);
        continue;
      }
      read_rows(vectors, head, 0, vectors.rows, std::span(brain));
      for (std::size_t i = 0; i < head_values; ++i) {
        halves[i] = to_half(bfloat16_to_float(brain[i]));
        check_value(vectors, static_cast<std::int64_t>(begin + i), brain[i]);
      }
    }
  }

  /// Always the same rows: evenly spaced, including the first and the last.
  void sample(const Vectors& vectors, const HalfTensor& tensor) const {
    const std::int64_t stride = std::max<std::int64_t>(1, vectors.rows / kSampledRows);
    for (std::int64_t head = 0; head < vectors.heads; ++head) {
      for (std::int64_t row = 0; row < vectors.rows + stride - 1; row += stride) {
        const std::int64_t checked = std::min(row, vectors.rows - 1);
        const Half* values = tensor.row(head, checked);
        for (std::int64_t i = 0; i < vectors.dim; ++i) {
          if (is_finite(Hdf5Type::kHalf, values[i].bits)) continue;
          throw not_finite(vectors, (head * vectors.rows + checked) * vectors.dim + i);
        }
      }
    }
  }

  void verify(const Vectors& vectors) const {
    const std::int64_t piece = std::max<std::int64_t>(1, kPieceValues / vectors.dim);
    std::vector<std::uint16_t> bits;
    Sha256 whole;
    for (std::int64_t head = 0; head < vectors.heads; ++head) {
      Sha256 rows_hash;
      for (std::int64_t row = 0; row < vectors.rows; row += piece) {
        const std::int64_t rows = std::min(piece, vectors.rows - row);
        const std::int64_t begin = (head * vectors.rows + row) * vectors.dim;
        bits.resize(static_cast<std::size_t>(rows * vectors.dim));
        if (vectors.offset) {
          const std::int64_t offset = *vectors.offset + 2 * begin;
          std::memcpy(bits.data(), mapping->at(offset), 2 * bits.size());
          mapping->release(offset, static_cast<std::int64_t>(2 * bits.size()));
        } else if (type == Hdf5Type::kHalf) {
          std::vector<Half> halves(bits.size());
          read_rows(vectors, head, row, rows, std::span(halves));
          std::memcpy(bits.data(), halves.data(), 2 * bits.size());
        } else {
          read_rows(vectors, head, row, rows, std::span(bits));
        }
        for (std::size_t i = 0; i < bits.size(); ++i) {
          check_value(vectors, begin + static_cast<std::int64_t>(i), bits[i]);
        }
        rows_hash.update(std::as_bytes(std::span(bits)));
      }
      whole.update(rows_hash.hex());
    }
    if (!hdf5.has_attribute(vectors.path, kVectorsSha256)) return;
    if (hdf5.text_attribute(vectors.path, kVectorsSha256) != whole.hex()) {
      throw UserError(
          hdf5.place(vectors.path),
          std::string("vectors do not match the attribute '") + kVectorsSha256 + "'",
          "an undamaged file; one that was changed on purpose goes without the attribute");
    }
  }

  /// What a run asks of a stored value: it is finite, as half precision too.
  void check_value(const Vectors& vectors, std::int64_t index, std::uint16_t bits) const {
    if (!is_finite(type, bits)) throw not_finite(vectors, index);
    if (type == Hdf5Type::kHalf) return;
    const float value = bfloat16_to_float(bits);
    if (is_finite(Hdf5Type::kHalf, to_half(value).bits)) return;
    throw UserError(
        hdf5.place(vectors.path),
        std::to_string(value) + " at value " + std::to_string(index) + " does not fit in f16",
        "magnitudes up to 65504");
  }

  /// Throws UserError at an object that no run reads: a damaged name, or another program's data.
  void check_objects() const {
    const auto is_number = [](const std::string& name) {
      return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    };
    std::vector<std::string> statistics(kTokenStatistics.begin(), kTokenStatistics.end());
    statistics.emplace_back("id");
    std::vector<std::string> vectors(kVectorNames.begin(), kVectorNames.end());
    vectors.insert(vectors.end(), {kOutputSketch, kResidualNorm});
    for (const std::string& path : hdf5.paths()) {
      std::vector<std::string> names;
      for (std::size_t begin = 1; begin < path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        names.push_back(path.substr(begin, end - begin));
        begin = end + 1;
      }
      if (names.empty()) continue;
      const bool layered = names[0] == "layer" || names[0] == "adapter";
      bool known = layered || names[0] == "tokens";
      if (known && layered && names.size() > 1) {
        known = is_number(names[1]) && names[1].size() < 9;
        const std::int64_t layer = known ? std::stoll(names[1]) : -1;
        known = known && names[1] == layer_name(layer) &&
                std::find(info.recorded_layers.begin(), info.recorded_layers.end(), layer) !=
                    info.recorded_layers.end();
      }
      const std::vector<std::string>& allowed = layered ? vectors : statistics;
      const std::size_t depth = layered ? 3 : 2;
      if (known && names.size() == depth && names[0] != "adapter") {
        known = std::find(allowed.begin(), allowed.end(), names.back()) != allowed.end();
      }
      if (known && names.size() <= depth) continue;
      throw UserError(hdf5.place(path), "is no object of a trace, and no run would read it",
                      "/tokens, and /layer and /adapter with the recorded layers "
                      "(docs/trace-format.md)");
    }
  }

  /// A range that every model's numbers lie in.
  void check_range(const std::string& path, std::span<const float> values, float least,
                   float most) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= least && values[i] <= most) continue;
      throw UserError(hdf5.place(path),
                      "found " + std::to_string(values[i]) + " at value " + std::to_string(i),
                      "entropies from 0, probabilities from 0 to 1 and their logarithms up to 0");
    }
  }

  void check_finite(const std::string& path, std::span<const float> values) const {
    const auto found = std::find_if_not(values.begin(), values.end(),
                                        [](float value) { return std::isfinite(value); });
    if (found == values.end()) return;
    throw UserError(
        hdf5.place(path),
        "not a number or infinite at value " + std::to_string(std::distance(values.begin(), found)),
        "finite values");
  }

  [[nodiscard]] std::int64_t layer_number(std::int64_t index) const {
    return info.recorded_layers.at(static_cast<std::size_t>(index));
  }

  std::string file;
  Hdf5File hdf5;
  TraceInfo info;
  std::shared_ptr<MappedFile> mapping;
  Hdf5Type type;  ///< of the vectors: half, or uint16 that holds bfloat16
  std::vector<Layer> layers;
  std::once_flag hashed;
  std::string hash;
};

std::vector<Turn> TraceInfo::turns() const {
  if (segments.empty()) return {{0, prompt_tokens, tokens}};
  std::vector<Turn> turns;
  bool generating = true;
  for (const Segment& segment : segments) {
    if (!segment.generated && generating) {
      if (!turns.empty()) turns.back().end = segment.begin;
      turns.push_back({segment.begin, 0, tokens});
    } else if (segment.generated && !generating) {
      turns.back().generated_begin = segment.begin;
    }
    generating = segment.generated;
  }
  return turns;
}

TraceReader::TraceReader(std::string file) : state_(std::make_unique<State>(std::move(file))) {}
TraceReader::~TraceReader() = default;
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;

const std::string& TraceReader::file() const {
  return state_->file;
}
const TraceInfo& TraceReader::info() const {
  return state_->info;
}

const std::string& TraceReader::content_hash() const {
  std::call_once(state_->hashed, [this] { state_->hash = sha256_file(state_->file); });
  return state_->hash;
}

TraceLayer TraceReader::load_layer(std::int64_t index) const {
  const Layer& layer = state_->layers.at(static_cast<std::size_t>(index));
  auto storage = std::make_shared<LayerStorage>(state_->mapping);
  TraceLayer loaded;
  loaded.layer = state_->layer_number(index);
  loaded.keys = state_->load(layer.keys, *storage);
  loaded.values = state_->load(layer.values, *storage);
  loaded.queries = state_->load(layer.queries, *storage);
  if (layer.queries_ahead) loaded.queries_ahead = state_->load(*layer.queries_ahead, *storage);
  if (layer.attention_input) {
    loaded.attention_input = state_->load(*layer.attention_input, *storage);
  }
  loaded.query_start = layer.query_start;
  loaded.storage = std::move(storage);
  return loaded;
}

std::int64_t TraceReader::query_start(std::int64_t index) const {
  return state_->layers.at(static_cast<std::size_t>(index)).query_start;
}

bool TraceReader::has_queries_ahead(std::int64_t index) const {
  return state_->layers.at(static_cast<std::size_t>(index)).queries_ahead.has_value();
}

bool TraceReader::has_attention_input(std::int64_t index) const {
  return state_->layers.at(static_cast<std::size_t>(index)).attention_input.has_value();
}

std::optional<OutputWeights> TraceReader::load_output_weights(std::int64_t index) const {
  if (!state_->layers.at(static_cast<std::size_t>(index)).output_weights) return std::nullopt;
  const std::int64_t layer = state_->layer_number(index);
  const std::string norm = layer_path(layer, kResidualNorm);
  OutputWeights weights{state_->hdf5.read_vector<float>(layer_path(layer, kOutputSketch)),
                        state_->hdf5.read_vector<float>(norm)};
  state_->check_finite(layer_path(layer, kOutputSketch), weights.sketch);
  const auto least =
      std::find_if_not(weights.residual_norm.begin(), weights.residual_norm.end(),
                       [](float value) { return std::isfinite(value) && value > 0; });
  if (least != weights.residual_norm.end()) {
    throw UserError(state_->hdf5.place(norm),
                    "found " + std::to_string(*least) + " at value " +
                        std::to_string(least - weights.residual_norm.begin()),
                    "finite norms above 0");
  }
  return weights;
}

std::vector<std::string> TraceReader::adapter_names(std::int64_t index) const {
  const std::string group = adapter_group(state_->layer_number(index));
  if (!state_->hdf5.exists(group)) return {};
  return state_->hdf5.names(group);
}

std::optional<Adapter> TraceReader::load_adapter(std::int64_t index,
                                                 const std::string& name) const {
  const Hdf5File& hdf5 = state_->hdf5;
  const TraceInfo& info = state_->info;
  const std::string group = adapter_group(state_->layer_number(index));
  const std::string path = group + "/" + name;
  if (!hdf5.exists(path)) return std::nullopt;

  Adapter adapter;
  adapter.shape = hdf5.dataset(path).shape;
  std::vector<std::int64_t> allowed = adapter.shape;
  if (name == "joint_lowrank") {
    const std::int64_t width = info.kv_heads * info.head_dim;
    const std::int64_t rank = adapter.shape.size() == 2 ? adapter.shape[1] : width;
    allowed = {width, std::clamp<std::int64_t>(rank, 1, width)};
  } else if (name == "head_pca" || name == "head_skew") {
    allowed = {info.kv_heads, info.head_dim, info.head_dim};
  }
  check_dataset(hdf5, path, Hdf5Type::kFloat, allowed, 4, state_->mapping->size());
  adapter.values = hdf5.read_vector<float>(path);
  state_->check_finite(path, adapter.values);
  // The nearest object that has the attribute wins: the matrix, its layer, or all adapters.
  for (const std::string& object : {std::string("/adapter"), group, path}) {
    if (hdf5.has_attribute(object, "text_sha256")) {
      adapter.text_sha256 = hdf5.text_attribute(object, "text_sha256");
    }
    if (hdf5.has_attribute(object, "tokens")) {
      adapter.text_tokens = hdf5.integer_attribute(object, "tokens");
    }
    if (hdf5.has_attribute(object, "positions")) {
      adapter.positions = hdf5.integer_attribute(object, "positions");
    }
  }
  return adapter;
}

std::vector<std::int32_t> TraceReader::token_ids() const {
  const std::string path = token_path("id");
  std::vector<std::int32_t> ids = state_->hdf5.read_vector<std::int32_t>(path);
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max() - 1;
  const auto found =
      std::find_if(ids.begin(), ids.end(), [](std::int32_t id) { return id < 0 || id > kMost; });
  if (found != ids.end()) {
    throw UserError(
        state_->hdf5.place(path),
        "found id " + std::to_string(*found) + " at value " + std::to_string(found - ids.begin()),
        "ids from 0 to " + std::to_string(kMost));
  }
  return ids;
}

std::vector<float> TraceReader::token_statistic(const std::string& name) const {
  const std::string path = token_path(name);
  if (std::find(kTokenStatistics.begin(), kTokenStatistics.end(), name) == kTokenStatistics.end()) {
    const std::vector<std::string> names(kTokenStatistics.begin(), kTokenStatistics.end());
    throw unknown_name(state_->hdf5.place("/tokens"), "token statistic", name, names);
  }
  std::vector<float> values = state_->hdf5.read_vector<float>(path);
  state_->check_finite(path, values);
  // Sums of a softmax are off by rounding.
  constexpr float kRounding = 1e-3f;
  const float infinity = std::numeric_limits<float>::infinity();
  if (name == "entropy") state_->check_range(path, values, -kRounding, infinity);
  if (name == "top_probability") state_->check_range(path, values, -kRounding, 1 + kRounding);
  if (name == "log_probability") state_->check_range(path, values, -infinity, kRounding);
  return values;
}

bool TraceReader::has_checksums() const {
  return state_->hdf5.has_attribute("/", Hdf5File::kContentSha256);
}

void TraceReader::check_unchanged() const {
  state_->mapping->check_unchanged();
}

void TraceReader::verify() const {
  state_->check_objects();
  for (const char* name : kTokenStatistics) (void)token_statistic(name);
  (void)token_ids();
  for (std::size_t i = 0; i < state_->layers.size(); ++i) {
    for (const Vectors* vectors : state_->layers[i].all()) state_->verify(*vectors);
    const auto index = static_cast<std::int64_t>(i);
    (void)load_output_weights(index);
    for (const std::string& name : adapter_names(index)) (void)load_adapter(index, name);
  }
  check_unchanged();
}

}  // namespace kvreplay
