#include "policies/decide/selection/selection.hpp"

namespace kvreplay {
namespace {

class Everything final : public Selection {
 public:
  void select(const Scores&, const Groups& groups, std::vector<RowSelection>& selected) override {
    for (RowSelection& row : selected) {
      row.clear();
      for (GroupId group = 0; group < groups.count(); ++group) {
        if (groups.live(group)) row.take_whole(group, groups);
      }
    }
  }
  [[nodiscard]] std::int64_t most_runs(std::int64_t) const override { return 1; }
};

const Registered<Selection> kEverything({
    .name = "everything",
    .help = "every group, whatever its score",
    .source = "full attention",
    .parameters = {},
    .make = [](const Arguments&,
               const Selection::Context&) { return std::make_unique<Everything>(); },
});

}  // namespace
}  // namespace kvreplay
