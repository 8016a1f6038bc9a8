// A library without a table, for the test of loading.
extern "C" int tessera_gpu_of_another_program(void);
extern "C" int tessera_gpu_of_another_program(void) { return 0; }
