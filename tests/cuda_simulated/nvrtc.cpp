// A libnvrtc that compiles nothing: a "cubin" is the mark of an ELF file and what was asked for. A
// source that says #error does not compile.
#include <stddef.h>
#include <string.h>

#include <string>

struct Program {
  std::string asked, said;
};

extern "C" {

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 5; return 0; }
int nvrtcGetNumSupportedArchs(int *count) { *count = 4; return 0; }
int nvrtcGetSupportedArchs(int *known) {
  const int all[] = {75, 80, 86, 90};
  memcpy(known, all, sizeof all);
  return 0;
}

int nvrtcCreateProgram(Program **program, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
  *program = new Program{std::string("\177ELF") + name + "\n" + source, ""};
  for (int i = 0; i < headers; ++i)
    (*program)->asked += std::string("\n") + names[i] + ": " + texts[i];
  return 0;
}

int nvrtcCompileProgram(Program *program, int options, const char *const *words) {
  for (int i = 0; i < options; ++i) program->asked += std::string("\n") + words[i];
  if (program->asked.find("#error") == std::string::npos) return 0;
  program->said = "In file included\nrows.cuh(7): error: #error directive\n";
  return 6;
}

int nvrtcGetProgramLogSize(Program *program, size_t *size) {
  *size = program->said.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(Program *program, char *log) {
  memcpy(log, program->said.c_str(), program->said.size() + 1);
  return 0;
}
int nvrtcGetCUBINSize(Program *program, size_t *size) { *size = program->asked.size(); return 0; }
int nvrtcGetCUBIN(Program *program, char *cubin) {
  memcpy(cubin, program->asked.data(), program->asked.size());
  return 0;
}
int nvrtcDestroyProgram(Program **program) { delete *program; return 0; }

}
