// Dueling head: q_a = v + a_a - mean(a). A thread is a row; rows are short.

extern "C" __global__ void dueling(float* q, const float* value, const float* advantage, int actions, int rows) {
    int row = element();
    if (row >= rows) return;
    size_t at = (size_t)row * actions;
    float sum = 0.0f, v = value[row];
    for (int i = 0; i < actions; ++i) sum += advantage[at + i];
    float mean = sum / (float)actions;
    for (int i = 0; i < actions; ++i) q[at + i] = v + (advantage[at + i] - mean);
}

extern "C" __global__ void dueling_bwd(float* g_value, float* g_advantage, const float* g_q, int actions, int rows) {
    int row = element();
    if (row >= rows) return;
    size_t at = (size_t)row * actions;
    float sum = 0.0f;
    for (int i = 0; i < actions; ++i) sum += g_q[at + i];
    g_value[row] = sum;
    float mean = sum / (float)actions;
    for (int i = 0; i < actions; ++i) g_advantage[at + i] = g_q[at + i] - mean;
}
