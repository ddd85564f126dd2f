#pragma once

#include <cstdint>
#include <vector>

#include "policies/decide/precision/precision.hpp"

namespace kvreplay {

/// A stream's entries as they come back from storage, in half precision, [kv_heads, max_tokens,
/// head_dim]. A part stores the exact entries and passes each row through its format.
class DecodedStore {
 public:
  explicit DecodedStore(const Precision::Context& context);

  /// Stores tokens [begin, end) of `exact`, exactly for now. begin must be where the last call
  /// ended.
  void put(const Entries& exact, Token begin, Token end);

  [[nodiscard]] Half* key(std::int64_t kv_head, Token token) {
    return keys_.data() + offset(kv_head, token);
  }
  [[nodiscard]] Half* value(std::int64_t kv_head, Token token) {
    return values_.data() + offset(kv_head, token);
  }
  /// Elements from one token's row to the next.
  [[nodiscard]] std::int64_t dim() const { return shape_.head_dim; }
  [[nodiscard]] std::int64_t head_stride() const { return max_tokens_ * shape_.head_dim; }
  [[nodiscard]] std::int64_t kv_heads() const { return shape_.kv_heads; }

  /// The entries of `exact`, decoded; a step's own token is not stored yet and is exact. The view
  /// is valid until the next call of any member.
  [[nodiscard]] Entries decoded(const Entries& exact);

 private:
  [[nodiscard]] std::int64_t offset(std::int64_t kv_head, Token token) const {
    return (kv_head * max_tokens_ + token) * shape_.head_dim;
  }
  void copy(const Entries& exact, Token begin, Token end);

  StreamShape shape_;
  std::int64_t max_tokens_;
  Token stored_ = 0;
  // Rows from stored_ on are scratch: decoded() places tokens there that are not stored yet.
  std::vector<Half> keys_;
  std::vector<Half> values_;
};

}  // namespace kvreplay
