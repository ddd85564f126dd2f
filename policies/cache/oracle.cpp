#include "policies/cache/oracle.hpp"

namespace kvreplay {

std::unique_ptr<Cache> oracle_for(const Chosen<Cache>& cache, std::int64_t held_bytes,
                                  const Cache::Context& context) {
  const Part<Cache>& belady = Registry<Cache>::instance().find("belady", {});
  const auto& own = cache.arguments().all();
  const bool limited = own.contains("capacity_groups");  // and bytes: capacity_and()
  Arguments arguments = Arguments::defaults(belady.parameters, {});
  for (const Parameter& parameter : belady.parameters) {
    const bool in_groups = parameter.name == "capacity_groups";
    if (!in_groups && parameter.name != "capacity_bytes") continue;
    const Value held = in_groups ? std::int64_t{0} : held_bytes;
    arguments.set(parameter, {limited ? own.find(parameter.name)->second.value : held, "", false});
  }
  return belady.make(arguments, context);
}

}  // namespace kvreplay
