#include "policies/place/cache/support/oracle.hpp"

namespace kvreplay {

OracleCapacity oracle_capacity(const PartConfig<Cache>& cache, std::int64_t held_bytes) {
  const Arguments& own = cache.arguments();
  if (!own.all().contains("capacity_groups")) return {.bytes = held_bytes};
  return {own.integer("capacity_groups"), own.integer("capacity_bytes")};  // capacity_and()
}

std::unique_ptr<Cache> oracle_with(const OracleCapacity& capacity, const Cache::Context& context) {
  const Part<Cache>& belady = Registry<Cache>::instance().find("belady", {});
  Arguments arguments = Arguments::defaults(belady.parameters, {});
  for (const Parameter& parameter : belady.parameters) {
    if (parameter.name == "capacity_groups") arguments.set(parameter, {capacity.groups, "", false});
    if (parameter.name == "capacity_bytes") arguments.set(parameter, {capacity.bytes, "", false});
  }
  return belady.make(arguments, context);
}

}  // namespace kvreplay
