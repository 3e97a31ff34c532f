// Global functions: range, dict, namespace, cycler, joiner, and HF's raise_exception and
// strftime_now.
#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_strftime.h"

namespace ktx::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja2's sandbox

Result<Value> run_range(Call& call) {
  if (call.args.empty() || call.args.size() > 3 || !call.named.empty()) {
    return Error{fmt::format("range expected 1 to 3 arguments, got {}", call.args.size())};
  }
  auto object = std::make_shared<RangeObject>();
  const bool only_stop = call.args.size() == 1;
  object->start = only_stop ? 0 : KTX_TRY(call.integer(0));
  object->stop = KTX_TRY(call.integer(only_stop ? 0 : 1));
  object->step = call.args.size() == 3 ? KTX_TRY(call.integer(2)) : 1;
  if (object->step == 0) return Error{"range() arg 3 must not be zero"};
  if (object->size() > kMaxRange) {
    return Error{fmt::format("the range has {} items, {} are allowed", object->size(), kMaxRange)};
  }
  charge(call.meter, *object, sizeof(RangeObject));
  return Value(Kind::Range, std::move(object));
}

// dict(pairs or mapping, name=value, …)
Result<std::shared_ptr<DictObject>> build_dict(Call& call) {
  auto dict = new_dict(call.meter);
  if (call.args.size() > 1) {
    return Error{
        fmt::format("{} expected at most 1 argument, got {}", call.builtin.name, call.args.size())};
  }
  if (!call.args.empty()) {
    const Value& from = call.args[0];
    if (from.is(Kind::Dict)) {
      for (const DictObject::Entry& entry : from.dict().entries) {
        KTX_TRY(dict->set(call.meter, entry.key, entry.value));
      }
    } else {
      for (const Value& item : KTX_TRY(items_of(call.meter, from))) {
        const std::vector<Value> pair = KTX_TRY(items_of(call.meter, item));
        if (pair.size() != 2) {
          return Error{fmt::format("a dict is made of pairs, not of {} values", pair.size())};
        }
        KTX_TRY(dict->set(call.meter, pair[0], pair[1]));
      }
    }
  }
  for (const auto& [name, value] : call.named) dict->set(call.meter, name, value);
  return dict;
}

Result<Value> run_dict(Call& call) {
  return make_dict(KTX_TRY(build_dict(call)));
}

Result<Value> run_namespace(Call& call) {
  return call.in.new_namespace(KTX_TRY(build_dict(call)));
}

Result<Value> run_raise_exception(Call& call) {
  return Error{KTX_TRY(call.printed(0))};
}

Result<Value> run_strftime_now(Call& call) {
  return call.string(format_time(call.in.now(), KTX_TRY(call.text(0))));
}

Result<Value> make_stateful(Call& call, std::string name, std::vector<Value> items,
                            const Builtin* when_called) {
  auto object = std::make_shared<CallableObject>();
  object->name = std::move(name);
  object->builtin = when_called;
  for (const Value& item : items) object->depth = std::max(object->depth, item.depth());
  ++object->depth;
  if (object->depth > call.meter.limits.value_depth) call.meter.too_deep = true;
  object->items = std::move(items);
  charge(call.meter, *object,
         static_cast<int64_t>(sizeof(CallableObject) + object->items.size() * sizeof(Value)));
  return Value(Kind::Callable, std::move(object));
}

Result<Value> run_cycler(Call& call) {
  if (call.args.empty()) return Error{"at least one item has to be provided"};
  return make_stateful(call, "cycler", call.args, nullptr);
}

Result<Value> run_cycler_next(Call& call) {
  CallableObject& cycler = call.self.callable();
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Result<Value> run_cycler_reset(Call& call) {
  call.self.callable().position = 0;
  return Value::none();
}

// The separator, but for the first time.
Result<Value> run_joiner_call(Call& call) {
  CallableObject& joiner = call.self.callable();
  if (joiner.position++ == 0) return call.string("");
  return joiner.items[0];
}

constexpr Builtin kJoinerCall = {"joiner", "", run_joiner_call};

Result<Value> run_joiner(Call& call) {
  return make_stateful(call, "joiner", {call.has(0) ? call.args[0] : call.string(", ")},
                       &kJoinerCall);
}

constexpr Builtin kGlobals[] = {
    {"range", "*", run_range},
    {"dict", "*", run_dict},
    {"namespace", "*", run_namespace},
    {"cycler", "*", run_cycler},
    {"joiner", "sep?", run_joiner},
    {"raise_exception", "message", run_raise_exception},
    {"strftime_now", "format", run_strftime_now},
};

constexpr Builtin kCyclerMethods[] = {
    {"next", "", run_cycler_next},
    {"reset", "", run_cycler_reset},
};

}  // namespace

std::span<const Builtin> globals() {
  return kGlobals;
}
std::span<const Builtin> cycler_methods() {
  return kCyclerMethods;
}

}  // namespace ktx::text::jinja
