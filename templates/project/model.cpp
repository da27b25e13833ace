@{ banner }@
#include "program.h"
{% if file.copy_header != "" %}
#include <@{ file.copy_header }@>
{% endif %}
{% for header in file.headers %}
#include "@{ header }@"
{% endfor %}

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {
inline namespace GRAVEN_LEVEL_NAMESPACE {
{% for function in file.functions %}

// ==== @{ function.title }@
{% if function.head != "" %}
@{ function.head }@
{% endif %}
void @{ function.owner }@::@{ function.name }@(@{ function.parameters }@) const {
{% for part in function.parts %}
  @{ part }@();
{% endfor %}
{% for group in function.groups %}
{% if not loop.is_first %}

{% endif %}
{% if group.banner != "" %}
  @{ group.banner }@
{% endif %}
{% for call in group.calls %}
  // @{ call.comment }@
{% for line in call.lines %}
  @{ line }@
{% endfor %}
{% endfor %}
{% endfor %}
}
{% endfor %}
{% if file.is_main %}

extern const Program program;
const Program program = {
    GRAVEN_TEXT(GRAVEN_LEVEL_NAMESPACE), measure_limits{% for function in functions %},
    {"@{ function.name }@", [](const Step& step) {
       Calls(step).@{ function.name }@();
     }}{% endfor %}{% if evaluates_apart %},
    {"evaluate", [](const EvaluationStep& step) { EvaluationCalls(step).evaluate(); }}{% endif %}{% if pipeline %},
    {{% for stage in stages %}{% if not loop.is_first %},
     {% endif %}{{"@{ stage.forward }@", [](const Step& step) { Calls(step).@{ stage.forward }@(); }},
      {"@{ stage.backward }@", [](const Step& step) { Calls(step).@{ stage.backward }@(); }},
{% if has_norms %}
      {"@{ stage.norms }@", [](const Step& step) { Calls(step).@{ stage.norms }@(); }},
{% endif %}
{% if evaluates_apart %}
      {"@{ stage.evaluate }@", [](const EvaluationStep& step) { EvaluationCalls(step).@{ stage.evaluate }@(); }},
{% endif %}
      {"@{ stage.update }@", [](const Step& step) { Calls(step).@{ stage.update }@(); }}}{% endfor %}}{% endif %}};
{% endif %}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace @{ namespace }@
