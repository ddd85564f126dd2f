#include "sim/replay/stage_store.hpp"

namespace kvreplay {
namespace {

class NoStore final : public StageStore {
 public:
  [[nodiscard]] std::optional<std::string> find(const std::string&, const std::string&) override {
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::string> read(const std::string&, const std::string&) override {
    return std::nullopt;
  }
  void put(const std::string&, const std::string&, std::string_view) override {}
  void put_file(const std::string&, const std::string&,
                const std::function<void(const std::string&)>&) override {}
  [[nodiscard]] std::string problem() const override { return ""; }
  [[nodiscard]] std::unique_ptr<Lock> lock(std::span<const std::string>) const override {
    return std::make_unique<Lock>();
  }
};

}  // namespace

StageStore& StageStore::none() {
  static NoStore store;
  return store;
}

}  // namespace kvreplay
