// The handlers of goldens, by name and by the kinds of golden that each one checks.
//
// A kind is "FOLDER/NAME" or the start of one: "components/model_swin" takes components/model_swin and
// components/model_swin_v2. The longest kind that fits a golden decides, so the order of registration has no
// effect. A golden may name its handler ("handler" in its metadata), which precedes all kinds.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace tessera::parity {

struct Golden;
struct CaseResult;

// May throw: the runner counts an exception as a failure with its message.
using Handler = std::function<CaseResult(const Golden&)>;

struct HandlerRow {
  std::string name;
  Handler check;
  std::vector<std::string> kinds;
};

class HandlerTable {
 public:
  // Fails if another row has the name or one of the kinds.
  void add(HandlerRow row);
  // The handler of a golden "FOLDER/NAME", null if no kind fits. `named` is the handler that the golden names,
  // or empty; fails if there is no such handler.
  const HandlerRow* find(const std::string& golden, const std::string& named = "") const;

 private:
  std::map<std::string, HandlerRow> rows_;    // by name
  std::map<std::string, std::string> kinds_;  // kind -> name of its row
};

// The table of this program. Each file of handlers fills it before main() with one object `Registered`.
HandlerTable& handlers();

struct Registered {
  Registered(std::initializer_list<HandlerRow> rows);
};

}  // namespace tessera::parity
