// One pass over the tokens. Macros alone cannot do this: what a qualifier becomes depends on the declaration around it.
//
//   extern __shared__ T name[];     static T *const name = (T *)SIM_DYNAMIC_SHARED;
//   __shared__ T name[N];           static __attribute__((used)) T name[N];          all of the module's .bss
//   __device__ T name;              T name in a section of its own (not .bss), unless const
//   __device__ T name(...) {...}    T name(...) {...}
//   extern "C" __global__ ... k()   itself, and a descriptor `sim_kernel_k` at the end
#include "rewrite.h"
#include "../abi.h"
#include <cctype>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

namespace {

// Markers that the device header's qualifiers expand to.
const char SHARED[] = "__sim_shared__", VARIABLE[] = "__sim_device__", GLOBAL[] = "__sim_global__",
           BOUNDS[] = "__sim_launch_bounds__";

struct Token {
  size_t from, to;
  bool word;  // identifier, keyword or number
};

class Rewriter {
 public:
  explicit Rewriter(const std::string &text) : text_(text) { scan(); }
  std::string run();

 private:
  const std::string &text_;
  std::vector<Token> tokens_;
  std::string out_;
  size_t copied_ = 0;  // text up to here is in out_
  struct Kernel {
    std::string name, bounds;
  };
  std::vector<Kernel> kernels_;

  void scan();
  std::string word(size_t i) const {
    return i < tokens_.size() ? text_.substr(tokens_[i].from, tokens_[i].to - tokens_[i].from) : "";
  }
  bool is(size_t i, const char *what) const {
    return i < tokens_.size() && tokens_[i].to - tokens_[i].from == strlen(what) &&
           !text_.compare(tokens_[i].from, strlen(what), what);
  }
  // The token after the bracket that closes the one at i.
  size_t behind(size_t i) const {
    int depth = 0;
    for (; i < tokens_.size(); ++i) {
      if (is(i, "(") || is(i, "[") || is(i, "{")) ++depth;
      if ((is(i, ")") || is(i, "]") || is(i, "}")) && --depth == 0) return i + 1;
    }
    return i;
  }
  // After one attribute that begins at i; i where there is none.
  size_t after_attribute(size_t i) const {
    if (is(i, "__attribute__") || is(i, "alignas") || is(i, BOUNDS)) return behind(i + 1);
    return i;
  }
  void replace(size_t from, size_t to, const std::string &by) {  // bytes of text_
    out_.append(text_, copied_, from - copied_);
    out_ += by;
    copied_ = to;
  }
  size_t declaration_end(size_t i) const;
  bool dynamic_shared(size_t i, size_t &next);
  void variable(size_t i, size_t declaration);
  void kernel(size_t i, bool c_linkage);
  size_t take_bounds(size_t i);
  std::string bounds_ = "0";  // of the kernel whose qualifiers are being read
};

void Rewriter::scan() {
  size_t i = 0, n = text_.size();
  bool line_start = true;
  while (i < n) {
    unsigned char c = (unsigned char)text_[i];
    if (c == '\n') {
      line_start = true;
      ++i;
      continue;
    }
    if (isspace(c)) {
      ++i;
      continue;
    }
    if (c == '#' && line_start) {
      while (i < n && text_[i] != '\n') ++i;
      continue;
    }  // line markers, pragmas
    line_start = false;
    size_t from = i;
    if (c == '"' || c == '\'') {
      for (++i; i < n && (unsigned char)text_[i] != c; ++i)
        if (text_[i] == '\\') ++i;
      ++i;
    } else if (isalnum(c) || c == '_') {
      auto part = [&](size_t k) {
        return isalnum((unsigned char)text_[k]) || text_[k] == '_' || (isdigit(c) && strchr(".'", text_[k]));
      };  // 1'000.5f
      while (i < n && part(i)) ++i;
    } else {
      ++i;
    }
    tokens_.push_back({from, i, (bool)(isalpha(c) || c == '_')});
  }
}
// Index of the token at which the declarator's fate shows: `;`, `=`, `{` or `(` outside attributes.
size_t Rewriter::declaration_end(size_t i) const {
  while (i < tokens_.size()) {
    size_t after = after_attribute(i);
    if (after != i) {
      i = after;
      continue;
    }
    if (is(i, ";") || is(i, "=") || is(i, "{") || is(i, "(")) return i;
    ++i;
  }
  return i;
}
// `extern` at i: is this dynamic shared memory?
bool Rewriter::dynamic_shared(size_t i, size_t &next) {
  size_t end = declaration_end(i);
  bool shared = false;
  for (size_t k = i; k < end; ++k) shared |= is(k, SHARED);
  if (!shared || !is(end, ";")) return false;
  std::string type, name, last;
  for (size_t k = i + 1; k < end; ++k) {
    size_t after = after_attribute(k);
    if (after != k) {
      k = after - 1;
      continue;
    }
    if (is(k, SHARED)) continue;
    if (is(k, "[") && is(k + 1, "]")) {
      name = last;
      last.clear();
      break;
    }
    if (!last.empty()) type += last + " ";
    last = word(k);
  }
  if (name.empty()) return false;
  char address[32];
  snprintf(address, sizeof address, "0x%lxul", SIM_DYNAMIC_SHARED);
  replace(tokens_[i].from, tokens_[end].to, "static " + type + "*const " + name + " = (" + type + "*)" + address + ";");
  next = end + 1;
  return true;
}
// `__device__` or `__constant__` at i: a variable must stay out of .bss, which is refilled for every block.
void Rewriter::variable(size_t i, size_t declaration) {
  size_t end = declaration_end(i);
  bool data = is(end, ";") || is(end, "="), fixed = false;
  if (is(end, "{")) data = end > 0 && !is(end - 1, ")");  // `T x{1}`; a function's body was preceded by `(`
  for (size_t k = declaration; k < end; ++k)
    fixed |= is(k, "const") || is(k, "constexpr") || is(k, "struct") || is(k, "class");
  replace(tokens_[i].from, tokens_[i].to, data && !fixed ? "__attribute__((section(\".data.sim_device\")))" : "");
}
// `__launch_bounds__(n, ...)` at i: keeps n, drops the rest; the token behind it.
size_t Rewriter::take_bounds(size_t i) {
  size_t after = behind(i + 1), end = i + 2;
  for (int depth = 0; end + 1 < after && (depth || !is(end, ",")); ++end) depth += is(end, "(") - is(end, ")");
  bounds_ = text_.substr(tokens_[i + 2].from, tokens_[end].from - tokens_[i + 2].from);
  replace(tokens_[i].from, tokens_[after - 1].to, "");
  return after;
}
// `__global__` at i: notes the kernel if this is its definition and its name is not mangled.
void Rewriter::kernel(size_t i, bool c_linkage) {
  replace(tokens_[i].from, tokens_[i].to, "__attribute__((used, noinline))");
  std::string name;
  size_t k = i + 1;
  for (; k < tokens_.size() && !is(k, "("); ++k) {
    if (is(k, BOUNDS)) {
      k = take_bounds(k) - 1;
    } else if (is(k, "__attribute__")) {
      k = behind(k + 1) - 1;
    } else if (tokens_[k].word) {
      name = word(k);
    }
  }
  if (c_linkage && is(behind(k), "{")) kernels_.push_back({name, bounds_});
  bounds_ = "0";
}
std::string Rewriter::run() {
  std::vector<bool> braces;  // of each open brace: does it belong to extern "C"?
  int c_braces = 0;
  bool c_declaration = false, c_brace = false;
  size_t declaration = 0;  // first token of the current declaration
  for (size_t i = 0; i < tokens_.size();) {
    size_t next = i + 1;
    if (is(i, "extern") && is(next, "\"C\"")) {
      c_declaration = true;
      c_brace = is(next + 1, "{");
      next = i + 2;
    } else if (is(i, "extern") && dynamic_shared(i, next)) {
      declaration = next;
    } else if (is(i, SHARED)) {
      replace(tokens_[i].from, tokens_[i].to, "static __attribute__((used))");
    } else if (is(i, VARIABLE)) {
      variable(i, declaration);
    } else if (is(i, BOUNDS)) {
      next = take_bounds(i);
    } else if (is(i, GLOBAL)) {
      kernel(i, c_declaration || c_braces);
      while (next < tokens_.size() && tokens_[next].from < copied_) ++next;
    } else if (is(i, "{")) {
      braces.push_back(c_brace);
      c_braces += c_brace;
      if (c_brace) c_declaration = false;
      c_brace = false;
      declaration = next;
    } else if (is(i, "}") && !braces.empty()) {
      c_braces -= braces.back();
      braces.pop_back();
      c_declaration = false;
      declaration = next;
    } else if (is(i, ";")) {
      c_declaration = false;
      declaration = next;
    }
    i = next;
  }
  out_.append(text_, copied_, text_.size() - copied_);
  out_ += "\n# 1 \"cuda_sim_kernels\"\n";
  std::set<std::string> seen;
  for (auto &k : kernels_) {
    if (!seen.insert(k.name).second) continue;
    std::string traits = "sim_traits<decltype(&" + k.name + "), &" + k.name + ">::";
    out_ += "extern \"C\" __attribute__((visibility(\"default\"), used)) const sim_kernel sim_kernel_" + k.name +
            " = {\"" + k.name + "\", " + traits + "n, " + traits + "sizes, " + traits + "pointers, (unsigned)(" +
            k.bounds + "), " + traits + "call};\n";
  }
  return out_;
}

}  // namespace

std::string rewrite(const std::string &preprocessed) { return Rewriter(preprocessed).run(); }
