#include "policies/decide/precision/precision.hpp"

namespace kvreplay {
namespace {

/// Stores every entry as the trace holds it.
class Fp16 final : public Precision {
 public:
  [[nodiscard]] std::vector<EntryFormat> formats() const override { return {{"fp16", 16, 0}}; }
  void add_tokens(const Entries&, Token, Token, EventSink&) override {}
  [[nodiscard]] Entries decoded(const Entries& exact) override { return exact; }
};

const Registered<Precision> kFp16({
    .name = "fp16",
    .help = "every entry in half precision, as recorded",
    .source = "the usual format of a KV cache",
    .parameters = {},
    .make = [](const Arguments&, const Precision::Context&) { return std::make_unique<Fp16>(); },
});

}  // namespace
}  // namespace kvreplay
