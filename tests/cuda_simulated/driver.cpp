// A libcuda whose device is the CPU: modules are libraries of simulated kernels, named by a path
// behind the mark of an ELF file. Any function can be told to fail.
#include <dlfcn.h>
#include <string.h>

namespace {

char failing[64];
int answer;
void *last_stream;

// After one of these nothing works any more.
bool is_sticky(int code) { return code == 700 || code == 719; }

int scripted(const char *function) {
  if (answer && (!strcmp(failing, function) || !strcmp(failing, "*"))) {
    if (is_sticky(answer)) strcpy(failing, "*");
    return answer;
  }
  return 0;
}

}  // namespace

extern "C" {

void stand_in_fails(const char *function, int code) {
  strncpy(failing, function, sizeof failing - 1);
  answer = code;
}

void *stand_in_stream() { return last_stream; }

int cuModuleLoadData(void **module, const char *image) {
  if (int code = scripted("cuModuleLoadData")) return code;
  if (memcmp(image, "\177ELF", 4)) return 200;
  *module = dlopen(image + 4, RTLD_NOW | RTLD_LOCAL);
  return *module ? 0 : 209;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  if (int code = scripted("cuModuleGetFunction")) return code;
  char symbol[128] = "simulate_";
  strncat(symbol, name, sizeof symbol - 10);
  *function = dlsym(module, symbol);
  return *function ? 0 : 500;
}

int cuLaunchKernel(void *function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                   unsigned, unsigned, void *stream, void **arguments, void **) {
  if (int code = scripted("cuLaunchKernel")) return code;
  last_stream = stream;
  auto kernel = (int (*)(unsigned, unsigned, void **))function;
  return kernel(blocks, threads, arguments) ? 719 : 0;
}

int cuGetErrorName(int code, const char **name) {
  *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : 0;
  return *name ? 0 : 1;
}

}
