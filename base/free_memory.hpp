#pragma once

#include <vector>

namespace kvreplay {

/// Empties a vector and frees its memory, which `values = {}` keeps.
template <typename T>
void free_memory(std::vector<T>& values) {
  std::vector<T>().swap(values);
}

}  // namespace kvreplay
