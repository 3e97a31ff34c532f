// The values of a chat template: Python's, as far as Jinja exposes them.
//
//   Value v = make_string(meter, "abc");       // owned by reference counting
//   Value l = make_list(meter, {v, Value::integer(3)});
//   l.list().items[1].as_int()                 // 3; check kind() first
//
// A Value is 24 bytes: scalars inside, everything else shared and (but for
// namespaces, generators and loops, as in HF's immutable sandbox) never changed
// after it was made. Strings are UTF-8; positions and lengths that a template
// sees are in code points. Integers are int64: an overflow is an error, where
// Python would grow. Wider ones that come from outside keep their digits, to be printed;
// in arithmetic they are floats.
//
// A Meter bounds what one rendering may use. Making a value never fails; it
// charges the meter, and the interpreter's next step fails when a limit is
// passed. Operations that can multiply their input ('a' * n, replace, join)
// call Meter::reserve before they allocate. Values must not outlive their meter.
//
// Not thread-safe across one rendering; a parsed template's constants belong to
// no meter and may be read by many renderings at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/chat_template/render_limits.h"
#include "lib/text/text_spans.h"

namespace ktx::text::jinja {

class Interpreter;
struct Builtin;
struct MacroStmt;
struct Scope;

// What a rendering has used of its limits.
struct Meter {
  RenderLimits limits;
  int64_t steps = 0;
  int64_t live_bytes = 0;
  bool too_deep = false;  // a container nested past limits.value_depth was made

  // Counts work (about 50 ns per step) and reports any passed limit.
  Status step(int64_t count = 1);
  // Would `bytes` more fit? Check this before an allocation that may be huge.
  Status reserve(int64_t bytes) const;
};

enum class Kind : uint8_t {
  Undefined,
  None,
  Bool,
  Int,
  WideInt,  // an integer that does not fit: its digits, and about its value
  Float,
  String,
  List,
  Tuple,
  DictView,  // what dict.keys(), .values() and .items() return
  Dict,
  Range,
  Generator,  // what map(), select(), … return: can be walked once
  Namespace,
  Callable,
  Loop,
};

// Everything shared: charges its meter while it lives.
struct Object {
  Meter* meter = nullptr;
  int64_t charged_bytes = 0;
  int depth = 0;         // containers below this one, so that no recursion over values runs deep
  bool outside = false;  // some text in it came from outside of the template (text_spans.h)
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (meter != nullptr) meter->live_bytes -= charged_bytes;
  }
};

struct StringObject;
struct ListObject;
struct DictObject;
struct RangeObject;
struct GeneratorObject;
struct NamespaceObject;
struct CallableObject;
struct LoopObject;

class Value {
 public:
  Value() : kind_(Kind::Undefined), int_(0) {}  // an undefined without a story
  static Value none() { return scalar(Kind::None, 0); }
  static Value boolean(bool v) { return scalar(Kind::Bool, v ? 1 : 0); }
  static Value integer(int64_t v) { return scalar(Kind::Int, v); }
  static Value real(double v) {
    Value value = scalar(Kind::Float, 0);
    value.float_ = v;
    return value;
  }
  Value(Kind kind, std::shared_ptr<Object> object)
      : kind_(kind), int_(0), object_(std::move(object)) {}
  Value(double about, std::shared_ptr<Object> digits)  // a WideInt
      : kind_(Kind::WideInt), float_(about), object_(std::move(digits)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::Undefined; }
  bool is_none() const { return kind_ == Kind::None; }
  bool is_string() const { return kind_ == Kind::String; }
  bool is_integral() const { return kind_ == Kind::Int || kind_ == Kind::Bool; }
  bool is_real() const { return kind_ == Kind::Float || kind_ == Kind::WideInt; }
  bool is_number() const { return is_integral() || is_real(); }

  // Each is our bug on another kind.
  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }  // also of a Bool
  double as_double() const {               // of any number
    return is_real() ? float_ : static_cast<double>(int_);
  }
  const StringObject& string() const { return object<StringObject>(); }
  const std::string& text() const;  // of a String; the digits of a WideInt
  const std::string* undefined_story()
      const;  // why it is undefined; null without a story, or when it is defined
  const ListObject& list() const { return object<ListObject>(); }  // List, Tuple, DictView
  const DictObject& dict() const { return object<DictObject>(); }
  const RangeObject& range() const { return object<RangeObject>(); }
  GeneratorObject& generator() const { return object<GeneratorObject>(); }
  NamespaceObject& ns() const { return object<NamespaceObject>(); }
  CallableObject& callable() const { return object<CallableObject>(); }
  LoopObject& loop() const { return object<LoopObject>(); }

  const std::shared_ptr<Object>& shared() const { return object_; }
  bool same_object(const Value& other) const { return object_ && object_ == other.object_; }
  int depth() const { return object_ ? object_->depth : 0; }
  bool outside() const { return object_ && object_->outside; }
  // Steps that looking at all of it once costs (not counting what is nested).
  int64_t weight() const;

 private:
  static Value scalar(Kind kind, int64_t v) {
    Value value;
    value.kind_ = kind;
    value.int_ = v;
    return value;
  }
  template <class T>
  T& object() const {
    return static_cast<T&>(*object_);
  }

  Kind kind_;
  union {
    int64_t int_;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  std::string text;
  bool markup = false;  // came from |safe or |escape: `+` with it escapes the other side
  TextSpans spans;      // of what came from outside
  // Code points; counted at the first question.
  int64_t length() const;
  bool ascii() const { return length() == static_cast<int64_t>(text.size()); }

 private:
  mutable int64_t length_ = -1;
};

struct ListObject : Object {
  std::vector<Value> items;
  const char* python_name = "list";  // of a view: dict_keys, dict_values, dict_items
  bool is_group = false;             // groupby's tuples also have .grouper and .list
};

// Insertion order, as in Python. Keys are hashable values.
struct DictObject : Object {
  struct Entry {
    Value key;
    Value value;
    size_t hash;
  };
  std::vector<Entry> entries;
  std::unordered_multimap<size_t, size_t> index;  // hash -> entry; filled above 8 entries

  const Value* find(std::string_view key) const;
  Result<const Value*> find(Meter& meter, const Value& key) const;  // error: unhashable
  Status set(Meter& meter, Value key, Value value);
  void set(Meter& meter, std::string_view key, Value value);

 private:
  void append(Entry entry);
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
  int64_t at(int64_t i) const { return start + i * step; }
};

struct GeneratorObject : Object {
  std::vector<Value> items;  // computed at once, handed out one by one
  size_t next = 0;
};

struct NamespaceObject : Object {
  std::shared_ptr<DictObject> attributes;
};

// A macro, a method bound to its object, a global function, a joiner or a cycler.
struct CallableObject : Object {
  std::string name;
  const Builtin* builtin = nullptr;  // with `self`
  Value self;
  const MacroStmt* macro = nullptr;  // with the scope it was defined in
  Scope* closure = nullptr;
  std::vector<Value> items;  // cycler
  size_t position = 0;       // cycler; joiner: whether it was used
};

// The `loop` variable. The interpreter fills it and empties it at the loop's end.
struct LoopObject : Object {
  std::vector<Value> items;  // all items, before the loop's `if`
  size_t next = 0;           // the item to look at next
  int64_t index0 = -1;
  int depth0 = 0;
  std::optional<Value> previous, current, after;  // after: looked ahead
  int64_t length = -1;                            // known once computed
  std::optional<Value> changed;
  bool filtered = false;  // the loop has an `if`
  void* state = nullptr;  // the running loop; null after its end
};

Value make_undefined(std::string story);
Value make_string(Meter& meter, std::string text, bool markup = false, TextSpans outside = {});
// `bytes` of a string from `begin` on.
Value make_part(Meter& meter, const StringObject& whole, size_t begin, size_t bytes);
// A new string, or strings in a new list, made of what `from` says whether it came from outside.
void inherit_origin(const Value& made, const Value& from);
Value make_wide_int(Meter& meter, std::string digits);
Value make_constant(std::string text);  // for a parsed template: charged to no meter
Value make_list(Meter& meter, std::vector<Value> items);
Value make_tuple(Meter& meter, std::vector<Value> items);
Value make_view(Meter& meter, std::vector<Value> items, const char* python_name);
Value make_generator(Meter& meter, std::vector<Value> items);
Value make_bound(Meter& meter, const Builtin& builtin, Value self);
std::shared_ptr<DictObject> new_dict(Meter& meter);
Value make_dict(std::shared_ptr<DictObject> dict);  // after the last set(): notes the depth

// Charges `object` (made by the caller) to the meter.
void charge(Meter& meter, Object& object, int64_t bytes);

// "str", "int", "NoneType", "Undefined", …
std::string_view type_name(const Value& value);
// The error of using an undefined value: its story.
Error undefined_error(const Value& value);

}  // namespace ktx::text::jinja
