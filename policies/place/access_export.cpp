#include "policies/place/access_export.hpp"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "base/output_file.hpp"
#include "policies/place/cache/support/key_map.hpp"

namespace kvreplay {
namespace {

template <typename Integer>
void append_little_endian(Integer value, std::string& bytes) {
  auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
  for (std::size_t i = 0; i < sizeof(Integer); ++i, bits = static_cast<decltype(bits)>(bits >> 8)) {
    bytes.push_back(static_cast<char>(bits & 0xff));
  }
}

}  // namespace

void export_accesses(const AccessLog& log, std::size_t layer, const KvShape& target,
                     const std::string& file) {
  const std::vector<TimedAccess> accesses = access_sequence(log, layer, target);
  std::vector<std::int64_t> next(accesses.size());
  KeyMap<std::int64_t> first(target.kv_heads, -1);
  for (std::size_t i = accesses.size(); i-- > 0;) {
    next[i] = first.get(accesses[i].access.key);
    first.set(accesses[i].access.key, static_cast<std::int64_t>(i));
  }
  std::string bytes;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const Access& access = accesses[i].access;
    if (access.bytes > std::numeric_limits<std::uint32_t>::max()) {
      throw std::logic_error("a group too large for an oracleGeneral record");
    }
    append_little_endian(static_cast<std::uint32_t>(accesses[i].step), bytes);
    append_little_endian(access.key.packed(), bytes);
    append_little_endian(static_cast<std::uint32_t>(access.bytes), bytes);
    append_little_endian(next[i], bytes);
  }
  write_text_file(file, bytes);
}

}  // namespace kvreplay
