#include "tests/parity/handlers.h"

#include "core/error.h"

namespace tessera::parity {

void HandlerTable::add(HandlerRow row) {
  for (const std::string& kind : row.kinds) {
    const auto [taken, added] = kinds_.emplace(kind, row.name);
    check(added, "goldens '", kind, "' have two handlers, '", taken->second, "' and '", row.name, "'");
  }
  const std::string name = row.name;
  check(rows_.emplace(name, std::move(row)).second, "two handlers have the name '", name, "'");
}

const HandlerRow* HandlerTable::find(const std::string& golden, const std::string& named) const {
  if (!named.empty()) {
    const auto found = rows_.find(named);
    check(found != rows_.end(), "the golden names the handler '", named, "', which does not exist");
    return &found->second;
  }
  for (size_t length = golden.size(); length > 0; --length)
    if (const auto kind = kinds_.find(golden.substr(0, length)); kind != kinds_.end())
      return &rows_.at(kind->second);
  return nullptr;
}

HandlerTable& handlers() {
  static HandlerTable table;
  return table;
}

Registered::Registered(std::initializer_list<HandlerRow> rows) {
  for (const HandlerRow& row : rows) handlers().add(row);
}

}  // namespace tessera::parity
