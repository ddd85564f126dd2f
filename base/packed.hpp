// By hand: CBOR or MessagePack would store an array's integers whole, not as small differences.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvreplay {

/// Numbers and texts one after the other, with small integers in few bytes: an integer as a zigzag
/// LEB128 varint, an array's integers as the differences of neighbours, a real as its eight bytes.
/// The types are not stored: a PackedReader must read the same types in the same order.
class PackedWriter {
 public:
  void operator()(bool value) { operator()(std::int64_t{value}); }
  void operator()(std::int64_t value);
  void operator()(std::uint64_t value) { operator()(static_cast<std::int64_t>(value)); }
  void operator()(double value);
  void operator()(const std::string& text);
  void operator()(const std::vector<std::int64_t>& values);
  void operator()(const std::vector<double>& values);

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what a PackedWriter wrote. Reading beyond the end, or an array longer than the remaining
/// bytes, is a std::logic_error: the caller has checked that these are the bytes written.
class PackedReader {
 public:
  explicit PackedReader(std::string_view bytes) : bytes_(bytes) {}

  void operator()(bool& value);
  void operator()(std::int64_t& value);
  void operator()(std::uint64_t& value);
  void operator()(double& value);
  void operator()(std::string& text);
  void operator()(std::vector<std::int64_t>& values);
  void operator()(std::vector<double>& values);

  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  /// std::logic_error when there are bytes left.
  void check_end() const;
  /// Elements of an array to come, each of at least one byte.
  [[nodiscard]] std::size_t count();

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

/// Calls visit(member) for each: one list of members per type, to write and to read. Where the list
/// is made of bindings that take every member, a type that gets one more does not compile until
/// the list has it.
template <typename Visit, typename... Members>
void visit_all(Visit&& visit, Members&... members) {
  (visit(members), ...);
}

}  // namespace kvreplay
