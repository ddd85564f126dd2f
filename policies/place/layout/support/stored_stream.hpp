#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "policies/decide/log/groups.hpp"

namespace kvreplay {

/// What a stream stores: the group of each token, and the bytes of each entry.
class StoredStream final : public EventSink {
 public:
  /// `format_bytes`: bytes of one entry of the stream, by format number.
  explicit StoredStream(std::vector<std::int64_t> format_bytes);

  void on_event(const GroupEvent& event) override;

  [[nodiscard]] const Groups& groups() const { return groups_; }
  [[nodiscard]] std::int32_t format(Token token) const {
    const auto index = static_cast<std::size_t>(token);
    return index < format_.size() ? format_[index] : 0;
  }
  [[nodiscard]] std::int64_t entry_bytes(Token token) const {
    return format_bytes_[static_cast<std::size_t>(format(token))];
  }
  /// Of one entry in the format.
  [[nodiscard]] std::int64_t format_bytes(std::int32_t format) const {
    return format_bytes_[static_cast<std::size_t>(format)];
  }
  [[nodiscard]] std::int64_t group_bytes(GroupId group) const {
    return group_bytes_[static_cast<std::size_t>(group)];
  }
  /// How many of the tokens [0, `tokens`) are in a format, evicted ones among them. All tokens
  /// beyond must be in format 0.
  [[nodiscard]] std::int64_t tokens_in(std::int32_t format, std::int64_t tokens) const {
    if (format > 0) return reencoded_[static_cast<std::size_t>(format)];
    return tokens - std::accumulate(reencoded_.begin(), reencoded_.end(), std::int64_t{0});
  }
  /// Bytes of all entries in groups.
  [[nodiscard]] std::int64_t grouped_bytes() const { return grouped_bytes_; }
  /// Bytes of the entries of tokens [0, `tokens`), including evicted ones. All tokens beyond must
  /// be in format 0.
  [[nodiscard]] std::int64_t all_bytes(std::int64_t tokens) const {
    return tokens * format_bytes_[0] + reencoded_bytes_;
  }
  /// Bytes of the entries of tokens [0, `tokens`) that are neither in a group nor evicted.
  [[nodiscard]] std::int64_t buffered_bytes(std::int64_t tokens) const {
    return all_bytes(tokens) - grouped_bytes_ - evicted_bytes_;
  }

 private:
  [[nodiscard]] std::int64_t bytes_of(std::span<const Token> tokens) const;
  void add(GroupId group, std::int64_t bytes);
  void reencode(Token token, std::int32_t format);

  std::vector<std::int64_t> format_bytes_;
  Groups groups_;
  std::vector<std::int64_t> group_bytes_;
  std::vector<std::int32_t> format_;  // by token; empty while all are in format 0
  std::int64_t grouped_bytes_ = 0;
  std::int64_t evicted_bytes_ = 0;
  std::vector<std::int64_t> reencoded_;  // tokens by format, without format 0
  std::int64_t reencoded_bytes_ = 0;     // by which re-encoded entries exceed format 0's bytes
};

}  // namespace kvreplay
