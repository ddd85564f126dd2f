#include "policies/decide/retention/retention.hpp"

namespace kvreplay {
namespace {

const Registered<Retention> kAll({
    .name = "all",
    .help = "no eviction: every entry stays in memory or on flash",
    .source =
        "FlexGen, Quest, ClusterKV, KVSwap: an entry that is not selected may be selected later",
    .parameters = {},
    .make = [](const Arguments&,
               const Retention::Context&) { return std::make_unique<Retention>(); },
});

}  // namespace
}  // namespace kvreplay
