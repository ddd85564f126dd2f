#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "policies/place/cache/cache.hpp"
#include "policies/place/cache/support/key_map.hpp"

namespace kvreplay {
namespace {

/// Blocks of consecutive tokens, shared by all streams. A group belongs to the block of its first
/// token. At the end of a step, the blocks from which it requested most tokens are used or come in.
/// A block holds those of its groups that steps have read; the rest would have to be read from
/// flash.
class TokenBlocks final : public Cache {
 public:
  TokenBlocks(const Arguments& arguments, const Context& context)
      : block_tokens_(arguments.integer("block_tokens")),
        capacity_blocks_(arguments.integer("capacity_blocks")),
        block_bytes_(block_tokens_ * context.streams * context.entry_bytes),
        bytes_(context.streams, kNotHeld) {}

  bool access(const Access& access, std::span<const Token> members) override {
    const Token first = *std::min_element(members.begin(), members.end());
    const std::int64_t block = first / block_tokens_;
    requested_[block] += std::ssize(members);
    if (contains(access.key)) return true;
    read_.push_back({access.key, block, access.bytes});
    return false;
  }

  void notify_resize(GroupKey key, std::int64_t bytes) override {
    if (!contains(key)) {
      // It may have been read in this step, and come in at its end.
      for (Read& read : read_) {
        if (read.key == key) read.bytes = bytes;
      }
      return;
    }
    used_bytes_ += bytes - bytes_.get(key);
    bytes_.set(key, bytes);
  }

  void erase(GroupKey key) override {
    if (contains(key)) release(key);
    std::erase_if(read_, [&](const Read& read) { return read.key == key; });
  }

  void end_step() override {
    // Pairs of the number of requested tokens, negated, and the block.
    std::vector<std::pair<std::int64_t, std::int64_t>> by_requests;
    for (const auto& [block, tokens] : requested_) by_requests.push_back({-tokens, block});
    std::sort(by_requests.begin(), by_requests.end());
    if (std::ssize(by_requests) > capacity_blocks_) {
      by_requests.resize(static_cast<std::size_t>(capacity_blocks_));
    }
    for (const auto& [order, block] : by_requests) use(block);
    for (const Read& read : read_) {
      const auto found = blocks_.find(read.block);
      if (found == blocks_.end()) continue;
      found->second.groups.push_back(read.key);
      bytes_.set(read.key, read.bytes);
      used_bytes_ += read.bytes;
    }
    requested_.clear();
    read_.clear();
  }

  [[nodiscard]] bool contains(GroupKey key) const override { return bytes_.get(key) != kNotHeld; }
  [[nodiscard]] std::int64_t used_bytes() const override { return used_bytes_; }
  [[nodiscard]] std::int64_t capacity_bytes(std::int64_t) const override {
    return capacity_blocks_ * block_bytes_;
  }

 private:
  static constexpr std::int64_t kNotHeld = -1;
  struct Block {
    std::int64_t uses = 0;
    std::int64_t last_use = 0;
    std::vector<GroupKey> groups;  // read since the block came in; some may no longer exist
  };
  struct Read {
    GroupKey key;
    std::int64_t block;
    std::int64_t bytes;
  };

  void use(std::int64_t block) {
    if (!blocks_.contains(block) && std::ssize(blocks_) == capacity_blocks_) evict();
    Block& used = blocks_[block];
    ++used.uses;
    used.last_use = ++uses_;
  }

  void evict() {
    const auto order = [](const auto& entry) {
      return std::pair(entry.second.uses, entry.second.last_use);
    };
    const auto victim =
        std::min_element(blocks_.begin(), blocks_.end(),
                         [&](const auto& a, const auto& b) { return order(a) < order(b); });
    for (const GroupKey key : victim->second.groups) {
      if (contains(key)) release(key);
    }
    blocks_.erase(victim);
  }

  void release(GroupKey key) {
    used_bytes_ -= bytes_.get(key);
    bytes_.set(key, kNotHeld);
  }

  std::int64_t block_tokens_;
  std::int64_t capacity_blocks_;
  std::int64_t block_bytes_;
  KeyMap<std::int64_t> bytes_;  // of groups held
  std::map<std::int64_t, Block> blocks_;
  std::int64_t used_bytes_ = 0;
  std::int64_t uses_ = 0;

  // Of the current step.
  std::map<std::int64_t, std::int64_t> requested_;  // tokens, by block
  std::vector<Read> read_;
};

const Registered<Cache> kTokenBlocks({
    .name = "token_blocks",
    .help = "blocks of consecutive tokens that steps request most, by frequency of use",
    .source = "PQCache (Zhang et al., SIGMOD 2025), section 3.4, and its released code; ours: a "
              "block holds the tokens read from it, not all of its tokens",
    .parameters = {integer_parameter("block_tokens", "tokens", 128, {1, 1e9}, "tokens per block"),
                   integer_parameter("capacity_blocks", "blocks", 32, {1, 1e9},
                                     "blocks held per layer, over all its streams")},
    .make =
        [](const Arguments& arguments, const Cache::Context& context) {
          return std::make_unique<TokenBlocks>(arguments, context);
        },
});

}  // namespace
}  // namespace kvreplay
