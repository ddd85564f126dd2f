#include "policies/decide/precision/precision.hpp"
#include "policies/decide/precision/support/entry_bytes.hpp"

namespace kvreplay {
namespace {

/// Stores every entry as the trace holds it.
class Fp16 final : public Precision {
 public:
  explicit Fp16(const StreamShape& shape) : shape_(shape) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override { return {{"fp16", 16, 0}}; }
  void add_tokens(const Entries&, Token, Token, EventSink&) override {}
  [[nodiscard]] Entries decoded(const Entries& exact) override { return exact; }

  [[nodiscard]] bool rounds_channels() const override { return false; }
  [[nodiscard]] bool has_codec() const override { return true; }
  void encode(const Entries& exact, Token token, std::int32_t,
              std::span<std::byte> to) const override {
    EntryWriter writer(to);
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      writer.put_row(exact.keys.row(head, token), shape_.head_dim);
      writer.put_row(exact.values.row(head, token), shape_.head_dim);
    }
  }
  void decode(std::span<const std::byte> from, Token, std::int32_t, Half* keys, Half* values,
              std::int64_t head_stride) const override {
    EntryReader reader(from);
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      reader.take_row(keys + head * head_stride, shape_.head_dim);
      reader.take_row(values + head * head_stride, shape_.head_dim);
    }
  }

 private:
  StreamShape shape_;
};

const Registered<Precision> kFp16({
    .name = "fp16",
    .help = "every entry in half precision, as recorded",
    .source = "the usual format of a KV cache",
    .parameters = {},
    .make = [](const Arguments&,
               const Precision::Context& context) { return std::make_unique<Fp16>(context.shape); },
});

}  // namespace
}  // namespace kvreplay
