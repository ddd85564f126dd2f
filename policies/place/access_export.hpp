#pragma once

#include <string>

#include "policies/place/place.hpp"

namespace kvreplay {

/// Writes the accesses that a layer's cache sees as libCacheSim's oracleGeneral records of 24
/// bytes, packed, little-endian: u32 time (the step), u64 object (stream << 32 | group), u32 bytes,
/// i64 number of the next access to the object, -1 for none. Accesses are numbered from 0. The file
/// appears whole or not at all. A group of 4 GiB or more is a std::logic_error.
void export_accesses(const AccessLog& log, std::size_t layer, const KvShape& target,
                     const std::string& file);

}  // namespace kvreplay
