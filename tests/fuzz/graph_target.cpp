// The reader of graphs.
#include <string>
#include <string_view>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/verify.h"
#include "tests/fuzz/targets.h"

namespace graven::fuzz {

void graph(Input input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  try {
    const ir::Graph read = ir::from_json(text, "graph.json");
    ir::verify(read);
    // What was read is written in one way only.
    const std::string canonical = ir::to_json(read);
    GRAVEN_FUZZ_CHECK(ir::to_json(ir::from_json(canonical, "canonical.json")) == canonical);
  } catch (const UserError& error) {
    const std::string what = error.what();
    GRAVEN_FUZZ_CHECK(what.find("graph.json") != std::string::npos);
    GRAVEN_FUZZ_CHECK(what.size() < 16384);
  }
}

}  // namespace graven::fuzz
