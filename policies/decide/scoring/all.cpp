#include <limits>
#include <vector>

#include "policies/decide/scoring/scoring.hpp"

namespace kvreplay {
namespace {

/// Gives every group the same score: for systems that select nothing.
class All final : public Scoring {
 public:
  void notify_event(const GroupEvent&, const Groups&, const Entries&) override {}

  [[nodiscard]] Scores score(QueryRows, const Groups& groups, const Entries&) override {
    values_.resize(static_cast<std::size_t>(groups.count()));
    for (GroupId group = 0; group < groups.count(); ++group) {
      values_[static_cast<std::size_t>(group)] =
          groups.live(group) ? 0 : -std::numeric_limits<float>::infinity();
    }
    return {1, groups.count(), values_};
  }

  [[nodiscard]] ScoreCost cost() const override { return {}; }

 private:
  std::vector<float> values_;
};

const Registered<Scoring> kAll({
    .name = "all",
    .help = "the same score for all groups, at no cost",
    .source = "FlexGen and in-memory attention, which select nothing",
    .parameters = {},
    .make = [](const Arguments&, const Scoring::Context&) { return std::make_unique<All>(); },
});

}  // namespace
}  // namespace kvreplay
