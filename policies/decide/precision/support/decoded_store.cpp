#include "policies/decide/precision/support/decoded_store.hpp"

#include <algorithm>
#include <cassert>

namespace kvreplay {

DecodedStore::DecodedStore(const Precision::Context& context)
    : shape_(context.shape), max_tokens_(context.entries_leave ? 0 : context.max_tokens) {
  const auto elements = static_cast<std::size_t>(shape_.kv_heads * max_tokens_ * shape_.head_dim);
  keys_.resize(elements);
  values_.resize(elements);
}

void DecodedStore::put(const Entries& exact, Token begin, Token end) {
  assert(begin == stored_ && end <= max_tokens_);
  copy(exact, begin, end);
  stored_ = end;
}

Entries DecodedStore::decoded(const Entries& exact) {
  const std::int64_t tokens = exact.keys.tokens;
  assert(tokens <= max_tokens_);
  copy(exact, stored_, static_cast<Token>(tokens));
  const std::int64_t stride = max_tokens_ * shape_.head_dim;
  return {{keys_.data(), shape_.kv_heads, tokens, shape_.head_dim, stride},
          {values_.data(), shape_.kv_heads, tokens, shape_.head_dim, stride}};
}

void DecodedStore::copy(const Entries& exact, Token begin, Token end) {
  if (begin >= end) return;
  const std::int64_t elements = (end - begin) * shape_.head_dim;
  for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
    std::copy_n(exact.keys.row(head, begin), elements, keys_.data() + offset(head, begin));
    std::copy_n(exact.values.row(head, begin), elements, values_.data() + offset(head, begin));
  }
}

}  // namespace kvreplay
